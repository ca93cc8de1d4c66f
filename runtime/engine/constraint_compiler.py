"""The compiler of an engine's constraints, made for the first one or before."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import cast

from ramet.grammars import (
    AutomatonStore,
    Constraint,
    Grammar,
    GrammarCompiler,
    GrammarStats,
    RegularBackend,
    Vocabulary,
)
from ramet.runtime.api.warm_up import load_constraints
from ramet.runtime.engine.config import EngineConfig
from ramet.runtime.engine.grammar_manager import CompiledGrammar


class ConstraintCompiler:
    """Compiles constraints for one model; may be used from several threads.

    Args:
        vocabulary: makes the vocabulary, which takes a while.
        config: how much is cached, and where.
        is_wanted: False once the engine is closed.
        max_bytes: most memory of compiled constraints.
    """

    def __init__(
        self,
        vocabulary: Callable[[], Vocabulary],
        config: EngineConfig,
        is_wanted: Callable[[], bool] = lambda: True,
        *,
        max_bytes: int,
    ) -> None:
        self._vocabulary = vocabulary
        self._config = config
        self._is_wanted = is_wanted
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._made: GrammarCompiler | None = None

    def compile(self, constraint: Constraint, key: str | None = None) -> CompiledGrammar:
        """The constraint's grammar. ConstraintError, or GrammarTooComplexError."""
        return self._compiler().compile(constraint, key)

    def prepare(self, grammar: CompiledGrammar, seconds: float) -> bool:
        """Goes on preparing a grammar's masks for about some time; whether there is more."""
        return isinstance(grammar, Grammar) and grammar.preparation.run(seconds)

    def warm_up(self) -> None:
        """Makes the compiler before the first constraint comes."""
        self._compiler()

    def find(self, constraint: Constraint, key: str | None = None) -> CompiledGrammar | None:
        """The constraint's grammar if it is cached."""
        return None if self._made is None else self._made.find(constraint, key)

    def stats(self) -> GrammarStats:
        """Counts of the cached grammars."""
        return GrammarStats() if self._made is None else self._made.stats()

    def _compiler(self) -> GrammarCompiler:
        with self._lock:
            if self._made is None:
                load_constraints(self._is_wanted)
                folder = self._config.grammar_cache
                made = GrammarCompiler(
                    self._vocabulary(),
                    max_bytes=self._max_bytes,
                    regular_backend=cast(RegularBackend, self._config.regular_backend),
                    store=None if folder is None else AutomatonStore(folder),
                )
                made.warm()
                self._made = made
            return self._made

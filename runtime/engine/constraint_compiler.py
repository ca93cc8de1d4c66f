"""The compiler of an engine's constraints, made when the first one comes or before."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ramet.grammars import AutomatonStore, Constraint, GrammarCompiler, GrammarStats, Vocabulary
from ramet.runtime.api.warm_up import load_constraints
from ramet.runtime.engine.config import EngineConfig
from ramet.runtime.engine.grammar_manager import CompiledGrammar


class ConstraintCompiler:
    """Compiles constraints for one model; may be used from several threads.

    Args:
        vocabulary: makes what grammars are compiled for, which takes a while.
        config: how much is remembered, and where.
        is_wanted: whether there is an engine that waits for it.
    """

    def __init__(
        self,
        vocabulary: Callable[[], Vocabulary],
        config: EngineConfig,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        self._vocabulary = vocabulary
        self._config = config
        self._is_wanted = is_wanted
        self._lock = threading.Lock()
        self._made: GrammarCompiler | None = None

    def compile(self, constraint: Constraint) -> CompiledGrammar:
        """The constraint's grammar. ConstraintError, or GrammarTooComplexError."""
        return self._compiler().compile(constraint)

    def warm(self) -> None:
        """Makes the compiler, as the first constraint would."""
        self._compiler()

    def find(self, constraint: Constraint) -> CompiledGrammar | None:
        """The constraint's grammar if it is remembered."""
        return None if self._made is None else self._made.find(constraint)

    def stats(self) -> GrammarStats:
        """What is remembered."""
        return GrammarStats() if self._made is None else self._made.stats()

    def _compiler(self) -> GrammarCompiler:
        with self._lock:
            if self._made is None:
                load_constraints(self._is_wanted)
                folder = self._config.grammar_cache
                made = GrammarCompiler(
                    self._vocabulary(),
                    max_bytes=self._config.grammar_bytes,
                    store=None if folder is None else AutomatonStore(folder),
                )
                made.warm()
                self._made = made
            return self._made

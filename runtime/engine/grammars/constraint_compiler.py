"""The compiler of an engine's constraints, created lazily or by ``warm``."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
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
from ramet.grammars.constraints.serialize import content_key
from ramet.runtime.api.request import SHARED, GrammarScope
from ramet.runtime.api.warm_up import load_constraints
from ramet.runtime.engine.config import EngineConfig
from ramet.runtime.engine.grammars.grammar_manager import CompiledGrammar

_LEAST_BYTES = 32 << 20
"""Memory for one tenant's constraints; of too many tenants, the least recently used lose it."""


class ConstraintCompiler:
    """Compiles constraints for one model; may be used from several threads.

    Where the configuration has tenants, each has a compiler of its own, so that the time of a
    compilation doesn't depend on what another tenant has sent. Within a tenant, requests with
    different salts share parts of grammars and no whole ones.

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
        self._has_tenants = bool(config.tenant_weights)
        self._most = max(1, min(len(config.tenant_weights), max_bytes // _LEAST_BYTES))
        self._bytes_each = max_bytes // self._most
        self._lock = threading.Lock()
        self._making = threading.Lock()  # held while a compiler is made, which may take minutes
        self._by_tenant: OrderedDict[str, GrammarCompiler] = OrderedDict()

    def compile(
        self, constraint: Constraint, key: str | None = None, scope: GrammarScope = SHARED
    ) -> CompiledGrammar:
        """The constraint's grammar. ConstraintError, or GrammarTooComplexError."""
        compiler = self._compiler(scope.tenant if self._has_tenants else "")
        return compiler.compile(constraint, self._scoped(constraint, key, scope))

    def prepare(self, grammar: CompiledGrammar, seconds: float) -> bool:
        """Continues preparing a grammar's masks for some time; returns whether there is more."""
        return isinstance(grammar, Grammar) and grammar.preparation.run(seconds)

    def warm_up(self) -> None:
        """Makes what constraints need before the first one comes."""
        for tenant in list(self._config.tenant_weights)[: self._most] or [""]:
            self._compiler(tenant)

    def find(
        self, constraint: Constraint, key: str | None = None, scope: GrammarScope = SHARED
    ) -> CompiledGrammar | None:
        """The constraint's grammar if it is cached."""
        made = self._by_tenant.get(scope.tenant if self._has_tenants else "")
        if made is None:
            return None
        return made.find(constraint, self._scoped(constraint, key, scope))

    def stats(self) -> GrammarStats:
        """Counts of the cached grammars, of all tenants."""
        with self._lock:
            each = [compiler.stats() for compiler in self._by_tenant.values()]
        return GrammarStats(
            num_grammars=sum(stats.num_grammars for stats in each),
            num_bytes=sum(stats.num_bytes for stats in each),
            num_stored_bytes=sum(stats.num_stored_bytes for stats in each),
            num_read=sum(stats.num_read for stats in each),
        )

    def _scoped(self, constraint: Constraint, key: str | None, scope: GrammarScope) -> str:
        key = key or content_key(constraint)
        return f"{scope.cache_salt}\0{key}" if self._has_tenants else key

    def _compiler(self, tenant: str) -> GrammarCompiler:
        known = self._known(tenant)
        if known is not None:
            return known
        with self._making:
            known = self._known(tenant)
            if known is not None:
                return known
            compiler = self._new_compiler(tenant)
            with self._lock:
                self._by_tenant[tenant] = compiler
                if len(self._by_tenant) > self._most:
                    self._by_tenant.popitem(last=False)
            return compiler

    def _known(self, tenant: str) -> GrammarCompiler | None:
        with self._lock:
            if tenant in self._by_tenant:
                self._by_tenant.move_to_end(tenant)
            return self._by_tenant.get(tenant)

    def _new_compiler(self, tenant: str) -> GrammarCompiler:
        load_constraints(self._is_wanted)
        folder = self._config.grammar_cache
        if folder is not None and self._has_tenants:
            digest = hashlib.sha256(tenant.encode()).hexdigest()
            folder = os.path.join(folder, f"tenant-{digest[:16]}")
        compiler = GrammarCompiler(
            self._vocabulary(),
            max_bytes=self._bytes_each,
            regular_backend=cast(RegularBackend, self._config.regular_backend),
            store=None if folder is None else AutomatonStore(folder),
        )
        compiler.warm()
        return compiler

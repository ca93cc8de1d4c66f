"""An engine's settings."""

from __future__ import annotations

from dataclasses import dataclass

from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.api.validate import whole
from ramet.runtime.scheduler import SchedulerConfig

_MAX_THREADS = 1024
"""More than any machine that is worth it has; far more would be threads that hold it up."""


_LEAST_CONTEXT_LEN = 16
"""Tokens of the shortest request that is worth an engine; its own first one is no longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig(SchedulerConfig):
    """A scheduler's limits, and the engine's own.

    Attributes:
        device: where the model runs: ``cpu``, ``cuda``, ``cuda:1``, or ``auto``: a GPU if there
            is one.
        page_size: tokens a page.
        num_pages: pages in the pool; None: as many as ``cache_bytes`` hold.
        cache_bytes: memory for keys and values, taken as it is first used, or, up to 128 MiB,
            shortly before, while a CPU's engine is idle. The default holds ``max_num_seqs``
            requests of a few hundred tokens each of a small model at once.
        max_context_len: most tokens of a request; None: the model's.
        num_threads: threads that compute, on a CPU; None: one a core.
        grammar_threads: threads that compile constraints; one of several is for large ones. With
            one alone, a constraint that takes seconds keeps all others waiting.
        grammar_bytes: about how much memory compiled grammars may take.
        grammar_cache: a folder that keeps their automata over a restart; None: nothing is kept.
        prefix_store: a folder that keeps hot prefixes over a restart; None: nothing is kept.
        prefix_store_bytes: the most that it may take.
        record_trace: a file that gets a trace of all requests, to replay against a cache; it
            holds no text. None: nothing is recorded.
        seed: makes the seeds of requests that name none reproducible.
    """

    device: str = "auto"
    page_size: int = 16
    num_pages: int | None = None
    cache_bytes: int = 384 << 20
    max_context_len: int | None = None
    num_threads: int | None = None
    grammar_threads: int = 2
    grammar_bytes: int = 256 << 20
    grammar_cache: str | None = None
    prefix_store: str | None = None
    prefix_store_bytes: int = 128 << 20
    record_trace: str | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        SchedulerConfig.__post_init__(self)  # super() does not know a class with slots
        for name in (
            "page_size",
            "num_pages",
            "cache_bytes",
            "max_context_len",
            "num_threads",
            "grammar_threads",
            "grammar_bytes",
        ):
            value = getattr(self, name)
            if value is not None and whole(name, value) < 1:
                raise InvalidParameterError(f"{name} must be at least 1", param=name)
        held = None if self.num_pages is None else self.num_pages * self.page_size
        for name, size in (("max_context_len", self.max_context_len), ("num_pages", held)):
            if size is not None and size < _LEAST_CONTEXT_LEN:
                raise InvalidParameterError(
                    f"{name} must be enough for {_LEAST_CONTEXT_LEN} tokens, not {size}", param=name
                )
        if self.num_threads is not None and self.num_threads > _MAX_THREADS:
            raise InvalidParameterError(
                f"num_threads must be at most {_MAX_THREADS}", param="num_threads"
            )
        if self.seed is not None:
            whole("seed", self.seed)
        if whole("prefix_store_bytes", self.prefix_store_bytes) < 0:
            raise InvalidParameterError(
                "prefix_store_bytes must be at least 0", param="prefix_store_bytes"
            )

"""Divides a server's memory into parts: weights, KV cache, grammars, and requests in work."""

from __future__ import annotations

from dataclasses import dataclass, field

from ramet.runtime.api.errors import ConfigurationError
from ramet.runtime.api.memory import format_bytes, format_parts, machine_memory_bytes
from ramet.runtime.engine.config import EngineConfig
from ramet.runtime.model.memory_needs import ModelNeeds

DEFAULT_CACHE_BYTES = 384 << 20
"""The KV cache's, where neither it nor all memory has a set size: a few hundred tokens for each of
64 sequences of a small model."""

PROCESS_BYTES = 384 << 20
"""Approximate memory of interpreters, libraries and compiled code of both processes."""

_GRAMMAR_BYTES = 16 << 20, 256 << 20
_REQUEST_BYTES = 8 << 20, 512 << 20
"""Bounds on the parts whose sizes aren't configured."""

_GRAMMAR_SHARE = 8
_REQUEST_SHARE = 16
"""The parts for grammars and requests are this fraction (1/8, 1/16) of what weights and processes
leave."""

_LEAST_KV_TOKENS = 256
"""A smaller KV cache is refused unless it is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """The parts of a server's memory, in bytes.

    Attributes:
        total: all of it.
        processes: what both processes take without a model and without requests.
        weights: the model's.
        kv: keys and values of the KV cache.
        grammars: compiled constraints.
        prompts: requests that wait or run.
        bodies: HTTP bodies that are received and processed.
        answers: events that no reader has taken yet.
        responses: stored responses.
        page_bytes: of one page of the KV cache; 0: unknown, or on a GPU.
        warnings: consequences that an operator may not expect.
    """

    total: int
    processes: int
    weights: int
    kv: int
    grammars: int
    prompts: int
    bodies: int
    answers: int
    responses: int
    page_bytes: int = 0
    warnings: tuple[str, ...] = field(default=())

    def parts(self) -> dict[str, int]:
        """The parts by name."""
        names = (
            "processes", "weights", "kv", "grammars", "prompts", "bodies", "answers", "responses",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}

    def summary(self) -> str:
        """One line for people."""
        return f"Memory of at most {format_bytes(self.total)}: {format_parts(self.parts())}"


def plan_memory(config: EngineConfig, needs: ModelNeeds | None = None) -> MemoryPlan:
    """Divides ``config.memory_gib``, or what the machine gives.

    Parts that the configuration names have that size. Of the rest, grammars and requests get
    shares within bounds; the KV cache gets what is left, but without ``memory_gib`` no more than
    ``DEFAULT_CACHE_BYTES``.

    Args:
        needs: the model's; None: of no known size.

    Raises:
        ConfigurationError: what is left is too little for the KV cache.
    """
    needs = needs or ModelNeeds()
    is_set = config.memory_gib is not None
    total = int(config.memory_gib * (1 << 30)) if config.memory_gib else machine_memory_bytes()
    free = max(0, total - PROCESS_BYTES - needs.weight_bytes)
    grammars = config.grammar_bytes or _share(free, _GRAMMAR_SHARE, _GRAMMAR_BYTES)
    requests = _share(free, _REQUEST_SHARE, _REQUEST_BYTES)
    left = free - grammars - 4 * requests
    kv = least = 0
    if needs.page_bytes:
        least = _least_kv(config, needs)
        if config.num_pages is not None:
            kv = least = config.num_pages * needs.page_bytes
        elif config.cache_bytes is not None:
            kv = least = config.cache_bytes
        else:
            kv = left if is_set else min(left, DEFAULT_CACHE_BYTES)
    plan = MemoryPlan(
        total=total,
        processes=PROCESS_BYTES,
        weights=needs.weight_bytes,
        kv=kv,
        grammars=grammars,
        prompts=requests,
        bodies=requests,
        answers=requests,
        responses=requests,
        page_bytes=needs.page_bytes,
        warnings=tuple(_warnings(config, needs, kv)),
    )
    if left < least or kv < least:
        others = {name: size for name, size in plan.parts().items() if name != "kv"}
        missing = least - left
        raise ConfigurationError(
            f"not enough memory: of {format_bytes(total)} "
            f"({'--memory-gib' if is_set else 'what this machine or its control group gives'}), "
            f"{format_parts(others)} leave {format_bytes(max(left, 0))} for the KV cache, which "
            f"needs {format_bytes(least)}; {format_bytes(missing)} more are needed: raise "
            "--memory-gib, or lower --cache-mib or --grammar-mib, or use a smaller model",
            param="memory_gib",
            code="not_enough_memory",
        )
    return plan


def _share(free: int, part: int, bounds: tuple[int, int]) -> int:
    least, most = bounds
    return min(max(free // part, least), most)


def _least_kv(config: EngineConfig, needs: ModelNeeds) -> int:
    tokens = min(_LEAST_KV_TOKENS, config.max_context_len or _LEAST_KV_TOKENS)
    return -(-tokens // config.page_size) * needs.page_bytes


def _warnings(config: EngineConfig, needs: ModelNeeds, kv_bytes: int) -> list[str]:
    """Says where the configuration can't have what it asks for."""
    found = []
    wanted = config.max_context_len or needs.context_len
    if needs.context_len and wanted > needs.context_len:
        found.append(
            f"--max-context-len {wanted} is more than the model's {needs.context_len} tokens, "
            "which is the limit"
        )
        wanted = needs.context_len
    if needs.page_bytes and kv_bytes:
        kv_tokens = kv_bytes // needs.page_bytes * config.page_size
        if kv_tokens < wanted:
            whole = -(-wanted // config.page_size) * needs.page_bytes
            found.append(
                f"the KV cache holds {kv_tokens} tokens, so requests are limited to these instead "
                f"of {wanted}; --cache-mib {-(-whole >> 20)} would hold a whole context"
            )
    return found

"""An engine's counters at one moment."""

from __future__ import annotations

from dataclasses import dataclass

from ramet.grammars import GrammarStats
from ramet.runtime.api.memory import PartUsage, resident_bytes
from ramet.runtime.cache import RadixCache
from ramet.runtime.engine.monitoring.gc_pauses import GC_PAUSES
from ramet.runtime.scheduler import Scheduler

_NOTHING = PartUsage(0, 0, 0)


@dataclass(frozen=True, slots=True)
class EngineStats:
    """What an engine is doing, and has done since its start."""

    num_running: int
    num_waiting: int
    num_compiling: int
    num_pages: int
    num_free_pages: int
    num_cached_pages: int
    num_held_pages: int
    num_evicted_pages: int
    page_size: int
    num_steps: int
    num_computed_tokens: int
    num_cached_tokens: int
    num_prompt_tokens: int
    num_output_tokens: int
    num_forced_tokens: int
    num_preemptions: int
    num_drafted_tokens: int
    num_accepted_tokens: int
    num_good_requests: int
    ends: dict[str, int]
    num_grammars: int = 0
    num_grammar_bytes: int = 0
    longest_gc_pause_s: float = 0.0
    resident_bytes: int = 0
    prompts: PartUsage = _NOTHING

    @classmethod
    def collect(
        cls,
        scheduler: Scheduler,
        cache: RadixCache,
        num_compiling: int,
        grammars: GrammarStats,
        prompts: PartUsage,
    ) -> EngineStats:
        """The counts as of now."""
        stats = scheduler.stats
        return cls(
            num_running=scheduler.num_running,
            num_waiting=scheduler.num_waiting,
            num_compiling=num_compiling,
            num_pages=cache.pool.num_pages,
            num_free_pages=cache.pool.num_free,
            num_cached_pages=cache.num_cached,
            num_held_pages=cache.num_locked,
            num_evicted_pages=cache.num_evicted,
            page_size=cache.page_size,
            num_steps=stats.num_steps,
            num_computed_tokens=stats.num_computed_tokens,
            num_cached_tokens=stats.num_cached_tokens,
            num_prompt_tokens=stats.num_prompt_tokens,
            num_output_tokens=stats.num_output_tokens,
            num_forced_tokens=stats.num_forced_tokens,
            num_preemptions=stats.num_preemptions,
            num_drafted_tokens=stats.num_drafted_tokens,
            num_accepted_tokens=stats.num_accepted_tokens,
            num_good_requests=stats.num_good,
            ends=dict(stats.ends),
            num_grammars=grammars.num_grammars,
            num_grammar_bytes=grammars.num_bytes,
            longest_gc_pause_s=GC_PAUSES.longest_s,
            resident_bytes=resident_bytes(),
            prompts=prompts,
        )

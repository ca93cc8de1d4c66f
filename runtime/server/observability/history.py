"""The engine's figures of the last hour, in memory."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from ramet.runtime.api.errors import EngineDeadError
from ramet.runtime.engine.api import EngineApi
from ramet.runtime.engine.monitoring.stats import EngineStats
from ramet.runtime.server.observability.recent_timings import RecentTimings, percentiles

SAMPLE_EVERY_S = 5.0
MAX_SAMPLES = 720
"""An hour of samples."""

Sample = dict[str, Any]


class EngineHistory:
    """Samples an engine's counts every five seconds.

    A sample has rates over the time since the last one, and percentiles of the requests that ended
    in it: null where none did. It costs the engine one reading of its counts.
    """

    def __init__(
        self,
        engine: EngineApi,
        timings: RecentTimings,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._engine = engine
        self._timings = timings
        self._clock = clock
        self._wall_clock = wall_clock
        self._samples: deque[Sample] = deque(maxlen=MAX_SAMPLES)
        self._last: tuple[float, EngineStats] | None = None

    async def run(self) -> None:
        """Samples until it is cancelled; a dead engine leaves a gap."""
        while True:
            with contextlib.suppress(EngineDeadError):
                self.add(await asyncio.to_thread(self._engine.stats))
            await asyncio.sleep(SAMPLE_EVERY_S)

    def since(self, moment: float) -> list[Sample]:
        """The samples after a moment, in seconds since the epoch; the oldest first."""
        return [each for each in self._samples if each["time"] > moment]

    def add(self, stats: EngineStats) -> None:
        """Adds a sample. The first reading is only what the next one is compared with."""
        now = self._clock()
        last, self._last = self._last, (now, stats)
        if last is None or now <= last[0] or stats.num_steps < last[1].num_steps:
            return  # a new engine counts from 0
        self._samples.append(self._sample(stats, last[1], now - last[0], last[0]))

    def _sample(
        self, stats: EngineStats, before: EngineStats, seconds: float, since: float
    ) -> Sample:
        prompt = stats.num_prompt_tokens - before.num_prompt_tokens
        cached = stats.num_cached_tokens - before.num_cached_tokens
        ended = self._timings.since(since)

        def rate(name: str) -> float:
            return float(getattr(stats, name) - getattr(before, name)) / seconds

        return {
            "time": self._wall_clock(),
            "running": stats.num_running,
            "waiting": stats.num_waiting,
            "compiling": stats.num_compiling,
            "output_tokens_per_s": rate("num_output_tokens"),
            "prompt_tokens_per_s": prompt / seconds,
            "computed_tokens_per_s": rate("num_computed_tokens"),
            "forced_tokens_per_s": rate("num_forced_tokens"),
            "drafts_accepted_per_s": rate("num_accepted_tokens"),
            "steps_per_s": rate("num_steps"),
            "requests_per_s": len(ended) / seconds,
            "goodput": rate("num_good_requests"),
            "hit_rate": min(1.0, cached / prompt) if prompt else None,
            "kv_used": 1 - stats.num_free_pages / stats.num_pages,
            "kv_held": stats.num_held_pages / stats.num_pages,
            "ttft": percentiles(each.ttft for each in ended),
            "tpot": percentiles(each.tpot for each in ended),
            "e2e": percentiles(each.e2e for each in ended),
        }

"""A line with the engine's rates in the log, while it is busy."""

from __future__ import annotations

import asyncio
import logging
import time
from statistics import fmean

from ramet.runtime.server.observability.history import EngineHistory, Sample

logger = logging.getLogger("ramet.server")


class StatsLog:
    """Logs the rates of the last interval.

    Args:
        interval_s: seconds between lines; 0: no lines.
    """

    def __init__(self, history: EngineHistory, interval_s: float) -> None:
        self._history = history
        self._interval_s = interval_s

    async def run(self) -> None:
        """Logs until it is cancelled; nothing while the engine is idle."""
        while self._interval_s > 0:
            since = time.time()
            await asyncio.sleep(self._interval_s)
            line = stats_line(self._history.since(since))
            if line:
                logger.info(line)


def stats_line(samples: list[Sample]) -> str:
    """The means over some samples; empty if nothing ran or waited."""
    busy = [each for each in samples if each["steps_per_s"] or each["running"] or each["waiting"]]
    if not busy:
        return ""
    last = samples[-1]
    hits = [each["hit_rate"] for each in samples if each["hit_rate"] is not None]

    def mean(name: str) -> float:
        return fmean(each[name] for each in samples)

    parts = [
        f"{last['running']} running, {last['waiting']} waiting",
        f"output {mean('output_tokens_per_s'):,.0f} tokens/s",
        f"prompts {mean('prompt_tokens_per_s'):,.0f} tokens/s",
        f"KV cache {last['kv_used']:.0%} used",
    ]
    if hits:
        parts.append(f"prefix hits {fmean(hits):.0%}")
    return ", ".join(parts)

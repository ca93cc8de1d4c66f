"""Times of the requests that have ended in the last moments, for percentiles."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ramet.runtime.api.events import Timings, Usage

_MAX_REQUESTS = 4_096


class RequestTimes(NamedTuple):
    """Seconds of one request; None: it didn't get there.

    Attributes:
        ended: when it ended, by the clock.
        ttft: to the first token.
        tpot: per output token after the first.
        e2e: to the end.
    """

    ended: float
    ttft: float | None
    tpot: float | None
    e2e: float | None


class RecentTimings:
    """The last requests' times: at most 4,096 of them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._times: deque[RequestTimes] = deque(maxlen=_MAX_REQUESTS)

    def add(self, timings: Timings, usage: Usage) -> None:
        tpot = time_per_output_token(timings, usage)
        self._times.append(
            RequestTimes(self._clock(), timings.first_token_s, tpot, timings.finished_s)
        )

    def since(self, moment: float) -> list[RequestTimes]:
        """Those that ended after a moment of the clock."""
        found = []
        for each in reversed(self._times):
            if each.ended <= moment:
                break
            found.append(each)
        return found


def time_per_output_token(timings: Timings, usage: Usage) -> float | None:
    """A request's mean time per token after its first; None for fewer than two tokens."""
    if timings.finished_s is None or timings.first_token_s is None or usage.completion_tokens < 2:
        return None
    return (timings.finished_s - timings.first_token_s) / (usage.completion_tokens - 1)


def percentiles(values: Iterable[float | None]) -> dict[str, float] | None:
    """The 50th, 90th and 99th by nearest rank; None for no values."""
    ordered = sorted(value for value in values if value is not None)
    if not ordered:
        return None
    last = len(ordered) - 1
    return {f"p{q}": ordered[round(q / 100 * last)] for q in (50, 90, 99)}

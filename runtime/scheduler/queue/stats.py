"""Counters of a scheduler, and rates derived from them."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field, fields
from typing import Any

from ramet.runtime.api.errors import RametError
from ramet.runtime.scheduler.sequence.sequence import Sequence

_WINDOW = 64


@dataclass(slots=True)
class SchedulerStats:
    """Counts since the start. Tokens computed are those the model read, prompt or output."""

    num_steps: int = 0
    num_computed_tokens: int = 0
    num_cached_tokens: int = 0
    num_prompt_tokens: int = 0
    num_output_tokens: int = 0
    num_forced_tokens: int = 0
    num_preemptions: int = 0
    num_drafted_tokens: int = 0
    num_accepted_tokens: int = 0  # of the drafted
    num_rows: int = 0
    num_good: int = 0  # requests that met their targets; those without targets, by ending well
    ends: Counter[str] = field(default_factory=Counter)
    _intervals: deque[float] = field(default_factory=lambda: deque(maxlen=_WINDOW))
    _last_time: float = 0.0  # of an end, or of an arrival where there was nothing to do

    def reset(self) -> None:
        """Resets all counts."""
        for item in fields(self):
            setattr(self, item.name, getattr(SchedulerStats(), item.name))

    def note_step(self, num_tokens: int, num_rows: int) -> None:
        self.num_steps += 1
        self.num_computed_tokens += num_tokens
        self.num_rows += num_rows

    def note_work(self, now: float) -> None:
        """Restarts the rate window after an idle period."""
        self._last_time = now

    def count_output(self, sequence: Sequence) -> None:
        """Counts a sequence's tokens that aren't counted yet: rates don't wait for its end."""
        self.num_output_tokens += sequence.num_output - sequence.num_counted
        sequence.num_counted = sequence.num_output

    def note_work_done(self, sequence: Sequence, now: float, *, is_success: bool) -> None:
        """Counts the tokens of a sequence that leaves the queue or the batch for good."""
        self.num_prompt_tokens += sequence.num_prompt
        self.count_output(sequence)
        self.num_forced_tokens += sequence.num_forced
        self._intervals.append(now - self._last_time)
        self._last_time = now
        if is_success:
            self.num_good += met_targets(sequence, now)

    def note_end(self, reason: Any) -> None:
        """Counts an end by its finish reason or its error's code."""
        is_error = isinstance(reason, RametError)
        self.ends[(reason.code or reason.type) if is_error else reason.reason] += 1

    def expected_wait_s(self, num_ends: int) -> float:
        """Seconds until ``num_ends`` requests will have ended, by the recent rate; at least 1."""
        if not self._intervals:
            return 1.0
        mean_s = sum(self._intervals) / len(self._intervals)
        return min(max(num_ends * mean_s, 1.0), 600.0)


def met_targets(sequence: Sequence, now: float) -> bool:
    """Whether an ended request met its own TTFT and TPOT targets."""
    request, first = sequence.request, sequence.first_token_time
    if first is None:
        return request.ttft_target_s is None
    if request.ttft_target_s is not None and first - sequence.submit_time > request.ttft_target_s:
        return False
    if request.tpot_target_s is None or sequence.num_output < 2:
        return True
    return (now - first) / (sequence.num_output - 1) <= request.tpot_target_s

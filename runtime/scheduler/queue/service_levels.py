"""TTFT and TPOT targets as limits of the schedule: order by slack, early refusal, step size.

A sequence's *due time* is when its first token is wanted: its TTFT target; or its deadline less the
time of a likely output, if that is earlier; ``max_wait_s`` after its arrival if it has neither.
Earliest due time first is the order of least slack, and it ages: a sequence's due time stays
while those of later arrivals grow.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import math
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator

from ramet.runtime.api.errors import TargetUnreachableError
from ramet.runtime.api.request import LIKELY_OUTPUT_LEN
from ramet.runtime.cache import RadixCache
from ramet.runtime.scheduler.queue.config import SchedulerConfig
from ramet.runtime.scheduler.sequence.sequence import Sequence, SequenceState
from ramet.runtime.scheduler.speculation.step_cost import StepCost

_LEAST_SHARE = 8
"""TPOT targets leave prompts at least a step's budget divided by this: none can stop the others."""
_TPOT_MARGIN = 0.9
"""Steps are sized for this share of a TPOT target: their times vary."""
_NUM_INTERVALS = 64
_LEAST_INTERVALS = 8
_LATE = 1e15
"""Added to the due time of a sequence that can't meet it: it goes after those that can."""

_Place = tuple[int, float, int]
"""(-priority, due time, arrival)"""


class ServiceLevels:
    """Predicts whether targets can be met, from the cost of steps and the rate of starts.

    Nothing is predicted before a step's duration is known.

    Args:
        running: the scheduler's running sequences.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        cache: RadixCache,
        step_cost: StepCost,
        running: Collection[Sequence],
        clock: Callable[[], float],
    ) -> None:
        self._config = config
        self._cache = cache
        self._step_cost = step_cost
        self._running = running
        self._clock = clock
        self._waiting: defaultdict[str, list[_Place]] = defaultdict(list)  # by tenant, sorted
        self._watched: list[tuple[float, int, Sequence]] = []  # heap
        self._serials = itertools.count()
        self._intervals: deque[float] = deque(maxlen=_NUM_INTERVALS)  # between starts, s
        self._last_start = 0.0

    # -- order ---------------------------------------------------------------------------------

    def due(self, sequence: Sequence) -> float:
        """When its first token is wanted, in the clock's seconds."""
        request, start = sequence.request, sequence.submit_time
        due = math.inf if request.ttft_target_s is None else start + request.ttft_target_s
        if sequence.deadline is not None:
            num_likely = min(sequence.max_len - sequence.num_prompt, LIKELY_OUTPUT_LEN)
            due = min(due, max(sequence.deadline - num_likely * self._step_s(1), start))
        return due if math.isfinite(due) else start + self._config.max_wait_s

    def key(self, sequence: Sequence) -> float:
        """Its place in the order; smaller is earlier."""
        return sequence.due + (_LATE if sequence.is_late else 0.0)

    # -- waiting sequences ---------------------------------------------------------------------

    def add(self, sequence: Sequence) -> TargetUnreachableError | None:
        """Adds a sequence that waits; an error if it is to be refused.

        It is, with ``shed_late``, if those of its own tenant that go before it take too long to
        start. Other tenants' sequences don't count, as shares decide between tenants.
        """
        now = self._clock()
        if not any(self._waiting.values()):
            self._last_start = now
        sequence.due = self.due(sequence)
        places = self._waiting[sequence.request.tenant]
        place = _place(sequence)
        index = bisect.bisect_left(places, place)
        places.insert(index, place)
        if not self._has_target(sequence):
            return None
        wait_s = index * self._start_interval_s() if self._config.shed_late else 0.0
        if self._is_reachable(sequence, now + wait_s):
            self._watch(sequence)
        elif self._config.shed_late:
            return self._error(wait_s)
        else:
            self._postpone(sequence)
        return None

    def start(self, sequence: Sequence, now: float) -> None:
        """A waiting sequence starts to run."""
        self.remove(sequence)
        sequence.is_late = False
        self._intervals.append(now - self._last_start)
        self._last_start = now

    def remove(self, sequence: Sequence) -> None:
        """Removes a sequence from those that wait, if it is there."""
        places = self._waiting.get(sequence.request.tenant)
        if places is None:
            return
        place = _place(sequence)
        index = bisect.bisect_left(places, place)
        if index < len(places) and places[index] == place:
            del places[index]
        if not places:
            del self._waiting[sequence.request.tenant]

    def find_late(self, now: float) -> Iterator[tuple[Sequence, TargetUnreachableError]]:
        """Waiting sequences to be refused, as their targets can't be met any more.

        Without ``shed_late`` there are none: such a sequence goes after those that can meet theirs.
        """
        while self._watched and self._watched[0][0] <= now:
            _, _, sequence = heapq.heappop(self._watched)
            if sequence.state is not SequenceState.WAITING or sequence.scheduled_time is not None:
                continue
            if self._is_reachable(sequence, now):
                self._watch(sequence)
            elif self._config.shed_late:
                num_waiting = len(self._waiting.get(sequence.request.tenant, ()))
                yield sequence, self._error(num_waiting * self._start_interval_s())
            else:
                self._postpone(sequence)

    def _postpone(self, sequence: Sequence) -> None:
        """Puts a sequence that can't meet its target after those that can."""
        self.remove(sequence)
        sequence.is_late = True

    def _watch(self, sequence: Sequence) -> None:
        """Looks at a sequence again when it has to start at the latest."""
        latest = sequence.due - self._prefill_s(1)
        if (length := sequence.num_prompt - self._cached_len(sequence)) > 1:
            latest = sequence.due - self._prefill_s(length)
        # At least a step later than now, so that each step looks at it once.
        again = max(latest, math.nextafter(self._clock(), math.inf))
        heapq.heappush(self._watched, (again, next(self._serials), sequence))

    def _is_reachable(self, sequence: Sequence, start: float) -> bool:
        """Whether its first token comes in time if it starts then."""
        if start + self._prefill_s(1) > sequence.due:
            return False
        if start + self._prefill_s(sequence.num_prompt) <= sequence.due:
            return True
        return start + self._prefill_s(sequence.num_prompt - self._cached_len(sequence)) <= (
            sequence.due
        )

    def _cached_len(self, sequence: Sequence) -> int:
        wanted = sequence.token_ids[: max(sequence.reusable_len, 0)]
        return self._cache.match(wanted, sequence.request.cache_salt).matched_len

    @staticmethod
    def _has_target(sequence: Sequence) -> bool:
        return sequence.request.ttft_target_s is not None or sequence.deadline is not None

    @staticmethod
    def _error(wait_s: float) -> TargetUnreachableError:
        return TargetUnreachableError(
            "the request's TTFT target or deadline can't be met at this load",
            retry_after_s=min(max(wait_s, 1.0), 600.0),
        )

    # -- predictions ---------------------------------------------------------------------------

    def _start_interval_s(self) -> float:
        """Mean time between starts while some wait; 0 if unknown."""
        if len(self._intervals) < _LEAST_INTERVALS:
            return 0.0
        return sum(self._intervals) / len(self._intervals)

    def _step_s(self, num_rows: int) -> float:
        """Duration of a step in which all rows decode; 0 if unknown."""
        if not self._step_cost.is_measured:
            return 0.0
        return self._step_cost.expected(num_rows, num_rows)[0]

    def _prefill_s(self, num_tokens: int) -> float:
        """Time to read a prompt in steps that it shares with what runs; 0 if unknown."""
        if not self._step_cost.is_measured:
            return 0.0
        num_rows = min(len(self._running), self._config.max_num_seqs - 1)
        chunk = max(self._config.max_tokens_per_step - num_rows, 1)
        num_steps = -(-num_tokens // chunk)
        own_s, token_s = self._step_cost.expected(num_rows, num_rows + 1)
        return num_steps * own_s + num_tokens * token_s

    # -- a step's size -------------------------------------------------------------------------

    def step_tokens(self, now: float) -> int:
        """Tokens that a step may compute so that the running streams meet their TPOT targets.

        A stream that can't meet its target any more isn't counted. Prompts keep an eighth of
        ``max_tokens_per_step`` in any case.
        """
        most, num_rows = self._config.max_tokens_per_step, len(self._running)
        if not self._step_cost.is_measured:
            return most
        decode_s, token_s = self._step_cost.expected(num_rows, num_rows)
        left_s = min((self._time_left(each, now, decode_s) for each in self._running), default=0.0)
        if not num_rows or math.isinf(left_s):
            return most
        spare = int(max(left_s - decode_s, 0.0) / token_s)
        return min(num_rows + max(spare, most // _LEAST_SHARE, 1), most)

    @staticmethod
    def _time_left(sequence: Sequence, now: float, decode_s: float) -> float:
        """Seconds until a stream's next token is wanted; infinite if nothing depends on it."""
        target, first = sequence.request.tpot_target_s, sequence.first_token_time
        if target is None or first is None:
            return math.inf
        num_more, num_output = max(sequence.num_left, 0), sequence.num_output
        if first + target * (num_output - 1 + num_more) < now + num_more * decode_s:
            return math.inf
        return first + _TPOT_MARGIN * target * num_output - now


def _place(sequence: Sequence) -> _Place:
    return -sequence.request.priority, sequence.due, sequence.arrival

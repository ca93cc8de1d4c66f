"""Admission of whole programs, up to the capacity of the page pool.

Programs that together need more than the pool holds evict each other's prefixes again and again
(thrashing), and most computation is repeated. So a program is admitted as a whole, once its
prompts, its outputs and its kept prefixes fit next to those of the programs admitted before it;
until then its calls wait for admission. This is the working set model of paging
(Denning 1968), with a working set that programs state rather than one that is estimated.

A program's need is what it states, times the ratio by which earlier runs of its name exceeded that.
Where that was too little, the program admitted last is suspended: it releases its kept prefixes and
waits for admission again.
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from ramet.runtime.api.request import LIKELY_OUTPUT_LEN
from ramet.runtime.cache import RadixCache
from ramet.runtime.scheduler.programs.programs import Program, Programs
from ramet.runtime.scheduler.queue.policy import Rank
from ramet.runtime.scheduler.sequence.sequence import Sequence, SequenceState
from ramet.runtime.scheduler.sequence.shared_len import shared_len

_WINDOW = 16
"""Most programs that one step tries to admit."""

_MAX_RANKED = 256
"""Most programs of one priority that are ranked to find those."""

_MAX_PASSED = 8
"""Later programs that may be admitted before an earlier one that doesn't fit in yet."""

_MAX_CALLS_MEASURED = 64
_NUM_RUNS = 16
_MAX_NAMES = 1024
_LEAST_RATIO, _MOST_RATIO = 0.5, 4.0
_FIRST_RATIO = 1.25
"""For programs without an ended run: those that branch on values mostly state too little."""


class UsageRatios:
    """Tokens that programs have added over what they had stated, by name, for recent runs."""

    def __init__(self) -> None:
        self._ratios: OrderedDict[str, deque[float]] = OrderedDict()

    def observe(self, name: str, expected: int, added: int) -> None:
        """Records an ended run."""
        ratios = self._ratios.setdefault(name, deque(maxlen=_NUM_RUNS))
        ratios.append(min(max(added / max(expected, 1), _LEAST_RATIO), _MOST_RATIO))
        self._ratios.move_to_end(name)
        if len(self._ratios) > _MAX_NAMES:
            self._ratios.popitem(last=False)

    def ratio(self, name: str) -> float:
        """The largest of the recent ratios."""
        return max(self._ratios.get(name, ()), default=_FIRST_RATIO)


@dataclass(slots=True)
class Claim:
    """An admitted program's total need in tokens, as ``stated`` and as ``expected``.

    ``is_whole``: the program had added nothing before its admission.
    """

    stated: int
    expected: float
    is_whole: bool


class Throughput:
    """Moving average of computed tokens per second of busy time."""

    def __init__(self) -> None:
        self._rate = 0.0
        self._last: float | None = None

    def observe(self, now: float, num_tokens: int) -> None:
        """Records a step's tokens."""
        if self._last is not None and now > self._last:
            rate = num_tokens / (now - self._last)
            self._rate = rate if not self._rate else 0.9 * self._rate + 0.1 * rate
        self._last = now

    def pause(self) -> None:
        """Excludes the idle time until now."""
        self._last = None

    def seconds(self, num_tokens: int) -> float:
        """Seconds that ``num_tokens`` take; 0 if unknown."""
        return num_tokens / self._rate if self._rate else 0.0


class AdmissionQueue:
    """Programs that wait for admission: a queue for each priority, by arrival.

    Thousands may wait, so only the front of each queue is ever ranked.
    """

    def __init__(self) -> None:
        self._priority: dict[Program, int] = {}
        self._queues: dict[int, dict[Program, None]] = {}

    def __len__(self) -> int:
        return len(self._priority)

    def add(self, program: Program) -> None:
        """Queues a program, or moves it to the queue of its calls' highest priority."""
        priority = program.priority
        if self._priority.get(program) != priority:
            self.discard(program)
            self._priority[program] = priority
            self._queues.setdefault(priority, {})[program] = None

    def discard(self, program: Program) -> None:
        """Removes a program, if it is queued."""
        priority = self._priority.pop(program, None)
        if priority is not None:
            queue = self._queues[priority]
            del queue[program]
            if not queue:
                del self._queues[priority]

    def in_front(self) -> Iterator[Program]:
        """Candidates for admission, in no order."""
        for queue in self._queues.values():
            waiting = (program for program in queue if program.is_waiting)
            yield from islice(waiting, _MAX_RANKED)


class ProgramAdmission:
    """Admits programs, and suspends some where pages run out.

    Args:
        set_awaiting: makes a waiting sequence wait for admission, or (False) lets it start.
        limited: False: every program is admitted on arrival.

    Attributes:
        throughput: of the steps; holding prefixes is weighed against computing them again.
    """

    def __init__(
        self,
        cache: RadixCache,
        programs: Programs,
        set_awaiting: Callable[[Sequence, bool], None],
        *,
        limited: bool,
    ) -> None:
        self.throughput = Throughput()
        self._cache = cache
        self._programs = programs
        self._set_awaiting = set_awaiting
        self._limited = limited
        self._ratios = UsageRatios()
        self._claims: dict[Program, Claim] = {}
        self._queue = AdmissionQueue()
        self._num_seen = -1  # ``num_releases`` at the last attempt to admit

    # -- calls ---------------------------------------------------------------------------------

    def add_call(self, program: Program) -> bool:
        """Adds a program's arrived call; returns whether it has to wait for admission."""
        if program.admitted:
            return False
        if not self._limited:
            self._programs.admit(program)
            return False
        self._queue.add(program)
        self._num_seen = -1
        return True

    def forget(self, program: Program) -> None:
        """Removes a forgotten program; if it has ended, its need is recorded."""
        self._queue.discard(program)
        claim = self._claims.pop(program, None)
        if claim is not None and claim.is_whole and program.is_over:
            self._ratios.observe(program.name, claim.stated, program.added_len)

    def admit(self, rank: Callable[[Sequence], Rank], now: float) -> None:
        """Admits the waiting programs that fit, in order.

        One that doesn't fit may be passed by later ones a few times; then they wait for it.
        """
        if not len(self._queue) or self._num_seen == self._programs.num_releases:
            return
        passed: list[Program] = []
        for program in self._first(rank):
            if not self._admit_one(program, now):
                if program.num_passed >= _MAX_PASSED:
                    break
                passed.append(program)
                continue
            for earlier in passed:
                earlier.num_passed += 1
            if any(earlier.num_passed >= _MAX_PASSED for earlier in passed):
                break
        any_idle = any(not program.calls for program in self._programs.admitted)
        self._num_seen = -1 if any_idle else self._programs.num_releases

    def _first(self, rank: Callable[[Sequence], Rank]) -> list[Program]:
        def order(program: Program) -> tuple[bool, int, float, int]:
            overdue, priority, _, share, _, _ = rank(next(iter(program.calls)))
            return overdue, priority, share, program.number

        return heapq.nsmallest(_WINDOW, self._queue.in_front(), key=order)

    def _admit_one(self, program: Program, now: float) -> bool:
        stated, num_woken = self._measure(program)
        expected = stated * self._ratios.ratio(program.name)
        needed = self._pages(expected) + len(program.calls) + num_woken
        admitted = self._programs.admitted
        while self._num_free() < needed and any(
            other.priority >= program.priority for other in admitted
        ):
            if not self._suspend_idle(now):
                return False
        added = program.num_added_tokens()
        self._claims[program] = Claim(stated, added + expected, is_whole=not added)
        self._programs.admit(program)
        program.num_passed = 0
        self._queue.discard(program)
        for sequence in program.calls:
            if sequence.state is SequenceState.WAITING:
                self._set_awaiting(sequence, False)
        return True

    # -- what programs need --------------------------------------------------------------------

    def _measure(self, program: Program) -> tuple[int, int]:
        """The tokens that a program states it will add, and the pages that it will newly hold."""
        waiting = [s for s in program.calls if s.state is SequenceState.WAITING]
        coming, tokens, num_woken = self._prompts_being_computed(program), 0, 0
        measured = waiting[:_MAX_CALLS_MEASURED]
        for sequence in measured:
            wanted = sequence.token_ids[: max(sequence.reusable_len, 0)]
            handle = self._cache.match(wanted, sequence.request.cache_salt)
            there = max([handle.matched_len, *(shared_len(other, wanted) for other in coming)])
            if sequence is waiting[0]:
                coming = [sequence.known]  # its other calls share at least this with it
            output = min(sequence.max_len - sequence.num_tokens, LIKELY_OUTPUT_LEN)
            tokens += sequence.num_tokens - there + output
            num_woken = max(num_woken, self._cache.num_evictable(handle))
        return tokens * len(waiting) // len(measured) + program.tokens_to_come, num_woken

    def _prompts_being_computed(self, program: Program) -> list[npt.NDArray[np.int32]]:
        """Prompts of admitted programs, whose shared prefixes need not be computed again."""
        salt = program.key[0]
        others = (p for p in self._programs.admitted if p.key[0] == salt and p.calls)
        return [next(iter(p.calls)).known for p in islice(others, _MAX_CALLS_MEASURED)]

    def _num_free(self) -> int:
        """Pages that no admitted program has or is expected to use."""
        return self._cache.num_available - sum(map(self._reserved, self._programs.admitted))

    def _reserved(self, program: Program) -> int:
        claim = self._claims.get(program)
        left = 0.0 if claim is None else max(claim.expected - program.num_added_tokens(), 0.0)
        return self._pages(left) + len(program.calls)

    def _pages(self, num_tokens: float) -> int:
        return math.ceil(num_tokens / self._cache.page_size)

    # -- when pages run out --------------------------------------------------------------------

    def reclaim_pages(self, sequence: Sequence, *, stuck: bool) -> bool:
        """Frees pages for a sequence by releasing the kept prefixes of the program that came last.

        Only of a program that came after the sequence's own; where nothing else can run
        (``stuck``) of any, its own included. False: there was nothing to release.
        """
        own = self._programs.find(sequence)
        keeping = [p for p in self._programs.admitted if p.holds_pages and p is not own]
        if not self._limited:
            victim = max(keeping, key=lambda p: p.hold_until, default=None)
        else:
            victim = max(keeping, key=lambda p: p.number, default=None)
            if victim is not None and not stuck and (own is None or victim.number < own.number):
                victim = None
        if victim is not None:
            self.suspend(victim)
            return True
        return stuck and own is not None and self._programs.release_kept(own)

    def note_preemption(self, sequence: Sequence, by: Sequence) -> None:
        """Suspends a preempted sequence's program if the other one's came earlier."""
        program, other = self._programs.find(sequence), self._programs.find(by)
        if program is None or program is other:
            return
        if other is None or program.number > other.number:
            self.suspend(program)

    def suspend(self, program: Program) -> None:
        """Releases a program's kept prefixes; its waiting calls wait for admission again."""
        if not self._limited:
            self._programs.release_kept(program)
            return
        self._programs.revoke_admission(program)
        claim = self._claims.pop(program, None)
        if claim is not None and program.calls:
            self._queue.add(program)
        for sequence in program.calls:
            if sequence.state is SequenceState.WAITING:
                self._set_awaiting(sequence, True)

    def _suspend_idle(self, now: float) -> bool:
        """Suspends an idle program whose prefixes aren't worth holding; False if there is none.

        Holding them isn't worth it if recomputing them takes less time than what is left of its
        tool's usual duration, or than it has been idle already: so an unknown duration costs at
        most twice what foresight would (the ski rental rule).
        """
        for program in self._programs.admitted:
            if program.calls:
                continue
            again_s = self.throughput.seconds(program.added_len)
            known_s = program.hold_until - now if program.hold_is_learned else 0.0
            if 0 < again_s < max(known_s, now - program.idle_since):
                self.suspend(program)
                return True
        return False

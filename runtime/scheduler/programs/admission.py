"""Which programs may have calls running: as many as the pool holds all that they will need of.

Programs that together need more than the pool holds evict each other's prefixes for ever, and most
of what is computed has been computed before. So a program is admitted as a whole, once its prompts,
its outputs and the prefixes that it will come back to fit in beside those of the programs that were
admitted before it; till then its calls are *parked*. This is the working set model of paging
(Denning 1968), with a working set that programs state rather than one that is estimated.

What a program will need is what it says, times how far earlier runs of its kind went beyond that.
Where that was too little, the program that came last gives up what it keeps, and parks again.
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
"""Parked programs that are looked at in one step."""

_MAX_RANKED = 256
"""Parked programs of one priority that are put in order to find those."""

_MAX_PASSED = 8
"""Later programs that may be admitted before an earlier one that doesn't fit in yet."""

_MAX_CALLS_MEASURED = 64
_NUM_RUNS = 16
_MAX_NAMES = 1024
_LEAST_RATIO, _MOST_RATIO = 0.5, 4.0
_FIRST_RATIO = 1.25
"""For a program that has never run to its end: what looks at values says too little, most often."""


class Experience:
    """How many tokens programs have added, over what they were expected to, by name."""

    def __init__(self) -> None:
        self._ratios: OrderedDict[str, deque[float]] = OrderedDict()

    def note(self, name: str, expected: int, added: int) -> None:
        """A program has ended."""
        ratios = self._ratios.setdefault(name, deque(maxlen=_NUM_RUNS))
        ratios.append(min(max(added / max(expected, 1), _LEAST_RATIO), _MOST_RATIO))
        self._ratios.move_to_end(name)
        if len(self._ratios) > _MAX_NAMES:
            self._ratios.popitem(last=False)

    def ratio(self, name: str) -> float:
        """The most of the last runs."""
        return max(self._ratios.get(name, ()), default=_FIRST_RATIO)


@dataclass(slots=True)
class Claim:
    """What an admitted program was taken to need, all in all: ``told`` tokens by its own words,
    ``expected`` in the light of earlier runs. ``is_whole``: it had added nothing before."""

    told: int
    expected: float
    is_whole: bool


class Throughput:
    """Tokens a second of late, while there was work."""

    def __init__(self) -> None:
        self._rate = 0.0
        self._last: float | None = None

    def note(self, now: float, num_tokens: int) -> None:
        """A step has computed these."""
        if self._last is not None and now > self._last:
            rate = num_tokens / (now - self._last)
            self._rate = rate if not self._rate else 0.9 * self._rate + 0.1 * rate
        self._last = now

    def rest(self) -> None:
        """There was nothing to do until now."""
        self._last = None

    def seconds(self, num_tokens: int) -> float:
        """How long so many take; 0 where nothing is known."""
        return num_tokens / self._rate if self._rate else 0.0


class Parked:
    """Programs with calls that wait to be admitted: a queue for each priority, by arrival.

    Thousands may be parked, so only those in front of each queue are ever ordered.
    """

    def __init__(self) -> None:
        self._priority: dict[Program, int] = {}
        self._queues: dict[int, dict[Program, None]] = {}

    def __len__(self) -> int:
        return len(self._priority)

    def add(self, program: Program) -> None:
        """Parks a program, or moves it to the queue of its calls' highest priority."""
        priority = program.priority
        if self._priority.get(program) != priority:
            self.discard(program)
            self._priority[program] = priority
            self._queues.setdefault(priority, {})[program] = None

    def discard(self, program: Program) -> None:
        """Takes a program out, if it is in."""
        priority = self._priority.pop(program, None)
        if priority is not None:
            queue = self._queues[priority]
            del queue[program]
            if not queue:
                del self._queues[priority]

    def in_front(self) -> Iterator[Program]:
        """The programs that may be next, in no order."""
        for queue in self._queues.values():
            waiting = (program for program in queue if program.is_waiting)
            yield from islice(waiting, _MAX_RANKED)


class ProgramAdmission:
    """Admits programs, parks their calls till then, and suspends programs where pages run out.

    Args:
        park: moves a waiting sequence to the parked ones, or (False) back to those that may start.
        limited: False: every program is admitted as it comes.

    Attributes:
        throughput: fed by whoever runs the steps; what is kept is weighed against computing it
            again.
    """

    def __init__(
        self,
        cache: RadixCache,
        programs: Programs,
        park: Callable[[Sequence, bool], None],
        *,
        limited: bool,
    ) -> None:
        self.throughput = Throughput()
        self._cache = cache
        self._programs = programs
        self._park = park
        self._limited = limited
        self._experience = Experience()
        self._claims: dict[Program, Claim] = {}
        self._parked = Parked()
        self._num_seen = -1  # ``num_frees`` when parked programs were last looked at

    # -- calls ---------------------------------------------------------------------------------

    def arrive(self, program: Program) -> bool:
        """A call of the program has come; returns whether it is to be parked."""
        if program.admitted:
            return False
        if not self._limited:
            self._programs.admit(program)
            return False
        self._parked.add(program)
        self._num_seen = -1
        return True

    def gone(self, program: Program) -> None:
        """The program is forgotten; it has shown how much it needed."""
        self._parked.discard(program)
        claim = self._claims.pop(program, None)
        if claim is not None and claim.is_whole and program.is_over:
            self._experience.note(program.name, claim.told, program.added_len)

    def admit(self, rank: Callable[[Sequence], Rank], now: float) -> None:
        """Admits the parked programs that fit in, the first in order first.

        One that doesn't fit in is passed by later ones a few times; then they wait for it.
        """
        if not len(self._parked) or self._num_seen == self._programs.num_frees:
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
        resting = any(not program.calls for program in self._programs.admitted)
        self._num_seen = -1 if resting else self._programs.num_frees

    def _first(self, rank: Callable[[Sequence], Rank]) -> list[Program]:
        def order(program: Program) -> tuple[bool, int, float, int]:
            overdue, priority, _, share, _, _ = rank(next(iter(program.calls)))
            return overdue, priority, share, program.number

        return heapq.nsmallest(_WINDOW, self._parked.in_front(), key=order)

    def _admit_one(self, program: Program, now: float) -> bool:
        told, num_woken = self._measure(program)
        expected = told * self._experience.ratio(program.name)
        needed = self._pages(expected) + len(program.calls) + num_woken
        admitted = self._programs.admitted
        while self._num_free() < needed and any(
            other.priority >= program.priority for other in admitted
        ):
            if not self._end_a_rest(now):
                return False
        added = program.added_so_far()
        self._claims[program] = Claim(told, added + expected, is_whole=not added)
        self._programs.admit(program)
        program.num_passed = 0
        self._parked.discard(program)
        for sequence in program.calls:
            if sequence.state is SequenceState.WAITING:
                self._park(sequence, False)
        return True

    # -- what programs need --------------------------------------------------------------------

    def _measure(self, program: Program) -> tuple[int, int]:
        """(tokens that the program says it will add, cached pages that it will hold and that
        nobody holds now)."""
        waiting = [s for s in program.calls if s.state is SequenceState.WAITING]
        coming, tokens, num_woken = self._being_computed(program), 0, 0
        measured = waiting[:_MAX_CALLS_MEASURED]
        for sequence in measured:
            wanted = sequence.token_ids[: max(sequence.reusable_len, 0)]
            handle = self._cache.match(wanted, sequence.request.cache_salt)
            there = max([handle.matched_len, *(shared_len(other, wanted) for other in coming)])
            if sequence is waiting[0]:
                coming = [sequence.known]  # its other calls have at least this in common with it
            output = min(sequence.max_len - sequence.num_tokens, LIKELY_OUTPUT_LEN)
            tokens += sequence.num_tokens - there + output
            num_woken = max(num_woken, self._cache.num_evictable(handle))
        return tokens * len(waiting) // len(measured) + program.tokens_to_come, num_woken

    def _being_computed(self, program: Program) -> list[npt.NDArray[np.int32]]:
        """Prompts whose beginnings admitted programs compute, so that this one needn't."""
        salt = program.key[0]
        others = (p for p in self._programs.admitted if p.key[0] == salt and p.calls)
        return [next(iter(p.calls)).known for p in islice(others, _MAX_CALLS_MEASURED)]

    def _num_free(self) -> int:
        """Pages that no admitted program has or is expected to take."""
        return self._cache.num_available - sum(map(self._reserved, self._programs.admitted))

    def _reserved(self, program: Program) -> int:
        claim = self._claims.get(program)
        left = 0.0 if claim is None else max(claim.expected - program.added_so_far(), 0.0)
        return self._pages(left) + len(program.calls)

    def _pages(self, num_tokens: float) -> int:
        return math.ceil(num_tokens / self._cache.page_size)

    # -- where pages run out -------------------------------------------------------------------

    def give_way(self, sequence: Sequence, *, stuck: bool) -> bool:
        """Makes room for a sequence of kept prefixes: those of the program that came last, if it
        came after the sequence's own; where nothing else can run (``stuck``) of any, the
        sequence's own included. False: there was nothing to give up."""
        own = self._programs.of(sequence)
        keeping = [p for p in self._programs.admitted if p.is_keeping and p is not own]
        if not self._limited:
            victim = max(keeping, key=lambda p: p.rests_until, default=None)
        else:
            victim = max(keeping, key=lambda p: p.number, default=None)
            if victim is not None and not stuck and (own is None or victim.number < own.number):
                victim = None
        if victim is not None:
            self.suspend(victim)
            return True
        return stuck and own is not None and self._programs.give_up(own)

    def preempted(self, sequence: Sequence, by: Sequence) -> None:
        """A sequence had to make room for one of another program, which is then the earlier."""
        program, other = self._programs.of(sequence), self._programs.of(by)
        if program is None or program is other:
            return
        if other is None or program.number > other.number:
            self.suspend(program)

    def suspend(self, program: Program) -> None:
        """Takes what a program keeps, and parks its waiting calls."""
        if not self._limited:
            self._programs.give_up(program)
            return
        self._programs.dismiss(program)
        claim = self._claims.pop(program, None)
        if claim is not None and program.calls:
            self._parked.add(program)
        for sequence in program.calls:
            if sequence.state is SequenceState.WAITING:
                self._park(sequence, True)

    def _end_a_rest(self, now: float) -> bool:
        """Suspends a resting program that isn't worth waiting for; False if there is none.

        What it keeps could be computed again in some time. It isn't worth it where the rest of its
        tool's usual time is longer than that, or where it has rested that long already: so what
        nobody knows costs at most twice what foresight would (the ski rental rule).
        """
        for program in self._programs.admitted:
            if program.calls:
                continue
            again_s = self.throughput.seconds(program.added_len)
            known_s = program.rests_until - now if program.rest_is_known else 0.0
            if 0 < again_s < max(known_s, now - program.rests_since):
                self.suspend(program)
                return True
        return False

"""Sequences that wait, in the order in which they should start."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from operator import itemgetter

from ramet.runtime.scheduler.queue.policy import Rank
from ramet.runtime.scheduler.sequence.sequence import Sequence, SequenceState

_WINDOW = 512

_Place = tuple[bool, bool, int, str]
"""(awaits admission, preempted, priority, tenant)"""


class WaitingQueue:
    """Thousands may wait, and few can start, so only those in front are ranked.

    Sequences of one tenant and priority queue up by arrival. Where they are ranked by arrival
    (``by_arrival``) only each queue's head is needed; else the first 512 of each are ordered.
    Sequences that wait for admission are in queues of their own.
    """

    def __init__(self, *, by_arrival: Callable[[], bool]) -> None:
        self._by_arrival = by_arrival
        self._queues: dict[_Place, dict[Sequence, None]] = {}
        self._len = 0

    def __len__(self) -> int:
        return self._len

    def __iter__(self) -> Iterator[Sequence]:
        for queue in self._queues.values():
            yield from queue

    def __contains__(self, sequence: Sequence) -> bool:
        return sequence in self._queues.get(_place(sequence), ())

    def add(self, sequence: Sequence) -> None:
        self._queues.setdefault(_place(sequence), {})[sequence] = None
        self._len += 1

    def remove(self, sequence: Sequence) -> None:
        place = _place(sequence)
        queue = self._queues[place]
        del queue[sequence]
        self._len -= 1
        if not queue:
            del self._queues[place]

    def set_awaiting(self, sequence: Sequence, awaits: bool) -> None:
        """Makes a waiting sequence wait for admission, or lets it start."""
        if sequence.awaits_admission != awaits:
            self.remove(sequence)
            sequence.awaits_admission = awaits
            self.add(sequence)

    @property
    def top_priority(self) -> int | None:
        """The highest priority of those that may start; None: there are none."""
        return max((place[2] for place in self._queues if not place[0]), default=None)

    def first(self, count: int, rank: Callable[[Sequence], Rank]) -> list[tuple[Rank, Sequence]]:
        """The ``count`` sequences of least rank that may start, in order."""
        parts: list[Iterator[tuple[Rank, Sequence]]] = []
        for (awaits, preempted, _, _), queue in self._queues.items():
            if awaits:
                continue
            ranked = ((rank(sequence), sequence) for sequence in itertools.islice(queue, _WINDOW))
            if not preempted and self._by_arrival():
                parts.append(ranked)
            else:
                parts.append(iter(sorted(ranked, key=itemgetter(0))))
        return list(itertools.islice(heapq.merge(*parts, key=itemgetter(0)), count))


def _place(sequence: Sequence) -> _Place:
    request = sequence.request
    return sequence.awaits_admission, sequence.num_preemptions > 0, request.priority, request.tenant


class Deadlines:
    """Deadlines of sequences in a heap, so that a step looks at the earliest only."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Sequence]] = []
        self._max_len = 64
        self._serials = itertools.count()

    def add(self, sequence: Sequence) -> None:
        """Watches a sequence, if it has a deadline."""
        if sequence.deadline is None:
            return
        heapq.heappush(self._heap, (sequence.deadline, next(self._serials), sequence))
        if len(self._heap) > self._max_len:
            self._heap = [e for e in self._heap if e[2].state is not SequenceState.FINISHED]
            heapq.heapify(self._heap)
            self._max_len = 64 + 2 * len(self._heap)

    def late(self, now: float) -> Iterator[Sequence]:
        """Takes out those whose deadline has passed."""
        while self._heap and self._heap[0][0] <= now:
            yield heapq.heappop(self._heap)[2]

"""Which cached page goes next: the one whose next use is farthest away.

Belady's rule (1966) with what is known. A page that a program expects again has a known next
use. One whose future is unknown is taken to come back after as long as it has lain idle, so the
least recently used goes first. What a program has forgotten never comes back. Times are ticks of
the cache's clock, which counts look-ups.
"""

from __future__ import annotations

import heapq

from ramet.runtime.cache.node import NEVER, Node

_Entry = tuple[float, int, int, Node]
"""(priority, order of arrival, the node's serial, node); stale when the serial is not current."""


class EvictionQueue:
    """Evictable nodes in three lazy heaps; every operation takes O(log n) amortised.

    A node enters by ``push`` when it becomes evictable, and again whenever its times change; an
    entry that is no longer its node's latest, or whose node isn't evictable, is skipped.
    """

    def __init__(self) -> None:
        self._idle: list[_Entry] = []  # unknown future, least recently used first
        self._farthest: list[_Entry] = []  # known future, farthest first
        self._soonest: list[_Entry] = []  # the same nodes, soonest first: to find broken promises
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._idle) + len(self._farthest)

    def push(self, node: Node) -> None:
        """Queues an evictable node under its present times."""
        self._arrivals += 1
        node.queue_serial += 1
        tail = (self._arrivals, node.queue_serial, node)
        if node.dead:
            heapq.heappush(self._farthest, (-NEVER, *tail))
        elif node.next_use is not None:
            heapq.heappush(self._farthest, (-node.next_use, *tail))
            heapq.heappush(self._soonest, (node.next_use, *tail))
        else:
            heapq.heappush(self._idle, (float(node.last_use), *tail))

    def pop(self, now: int) -> Node | None:
        """Takes the best node to evict, or None when there is none."""
        self._demote_overdue(now)
        idle, known = self._peek(self._idle), self._peek(self._farthest)
        if idle is None and known is None:
            return None
        idle_distance = -1.0 if idle is None else now - idle[0]
        known_distance = -1.0 if known is None else -known[0] - now
        heap = self._farthest if known_distance > idle_distance else self._idle
        if not heap:
            heap = self._farthest if heap is self._idle else self._idle
        node = heapq.heappop(heap)[-1]
        node.queue_serial += 1
        return node

    def compact(self, num_nodes: int) -> None:
        """Drops stale entries once they outnumber the nodes."""
        for heap in (self._idle, self._farthest, self._soonest):
            if len(heap) > 64 + 2 * num_nodes:
                heap[:] = [entry for entry in heap if _is_current(entry)]
                heapq.heapify(heap)

    def _demote_overdue(self, now: int) -> None:
        """A use that was expected and did not come makes the future unknown again."""
        while (entry := self._peek(self._soonest)) is not None and entry[0] < now:
            heapq.heappop(self._soonest)
            node = entry[-1]
            node.last_use = max(node.last_use, int(entry[0]))
            node.next_use, node.uses = None, 0
            self.push(node)

    @staticmethod
    def _peek(heap: list[_Entry]) -> _Entry | None:
        while heap and not _is_current(heap[0]):
            heapq.heappop(heap)
        return heap[0] if heap else None


def _is_current(entry: _Entry) -> bool:
    serial, node = entry[2], entry[3]
    return serial == node.queue_serial and node.evictable

"""Eviction: the page with the farthest expected next use is evicted first.

Belady's rule (1966) with what is known. A page that a program expects again has a known next use.
Any other page's wait is estimated as its idle time divided by its learned reuse probability: if it
is used again, then after about as long as it has been idle. With equal probabilities that is LRU.
A page that its program no longer needs is never used again. Times are ticks of the cache's clock,
which counts lookups.
"""

from __future__ import annotations

import heapq

from ramet.runtime.cache.node import NEVER, Node
from ramet.runtime.cache.reuse_probability import NUM_KINDS, ReuseProbability, kind_of

_MARGIN = 1.45
"""How many times as long a page's wait must be to be evicted before the least recently used page:
estimates are uncertain, and small advantages over LRU aren't real."""

_Entry = tuple[float, int, int, Node]
"""(priority, order of arrival, the node's serial, node); stale when the serial is not current."""


class EvictionQueue:
    """Evictable nodes in lazy heaps, taken out of their tree one by one; every operation takes
    O(log n) amortised.

    A node enters by ``push`` when it becomes evictable, and again whenever its times change; an
    entry that is no longer its node's latest, or whose node isn't evictable, is skipped.
    """

    def __init__(self) -> None:
        self.reuse = ReuseProbability()
        # Unknown future, a heap for each kind of page, least recently used first.
        self._idle: list[list[_Entry]] = [[] for _ in range(NUM_KINDS)]
        self._farthest: list[_Entry] = []  # known future, farthest first
        self._soonest: list[_Entry] = []  # the same nodes, soonest first: to find broken promises
        self._arrivals = 0

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
            heapq.heappush(self._idle[kind_of(node)], (float(node.last_use), *tail))

    def evict(self, now: int) -> Node | None:
        """Takes the best leaf to evict out of its tree, or returns None when there is none.

        Its parent inherits its times: each use was a use of both. The caller frees the page.
        """
        node = self._pop(now)
        if node is None:
            return None
        parent = node.parent
        assert parent is not None
        parent.remove_child(node)
        node.detached = True
        parent.last_use = max(parent.last_use, node.last_use)
        if node.next_use is not None and not node.dead:
            parent.next_use = min(parent.next_use or NEVER, node.next_use)
            parent.uses = max(parent.uses, node.uses)
        if parent.evictable:
            self.push(parent)
        return node

    def _pop(self, now: int) -> Node | None:
        """The best node to evict."""
        self._demote_overdue(now)
        heap, wait = self._idlest(now)
        known = self._peek(self._farthest)
        if known is not None and -known[0] - now > wait:
            heap = self._farthest
        if heap is None:
            return None
        node = heapq.heappop(heap)[-1]
        node.queue_serial += 1
        if heap is not self._farthest:
            self.reuse.note_eviction(node)
        return node

    def _idlest(self, now: int) -> tuple[list[_Entry] | None, float]:
        """The heap whose first page, of unknown next use, is evicted next, and its wait; or None.

        It is the least recently used, unless another's wait is longer by the margin.
        """
        heads: list[tuple[float, float, list[_Entry]]] = []
        for kind, heap in enumerate(self._idle):
            if (entry := self._peek(heap)) is not None:
                idle = now - entry[0] + 1
                heads.append((idle, idle / self.reuse[kind], heap))
        if not heads:
            return None, -1.0
        _, wait, heap = max(heads, key=lambda head: head[:2])
        _, longest, other = max(heads, key=lambda head: head[1])
        return (heap, wait) if longest < _MARGIN * wait else (other, longest)

    def compact(self, num_nodes: int) -> None:
        """Drops stale entries once they outnumber the nodes."""
        for heap in (*self._idle, self._farthest, self._soonest):
            if len(heap) > 64 + 2 * num_nodes:
                heap[:] = [entry for entry in heap if _is_current(entry)]
                heapq.heapify(heap)

    def _demote_overdue(self, now: int) -> None:
        """Resets pages whose expected use did not come to an unknown next use."""
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

"""How likely a cached page is to be used again, learned from what became of others like it."""

from __future__ import annotations

from ramet.runtime.cache.node import Node

NUM_KINDS = 4
"""Pages used never, once, twice, and more often, since they were cached."""

_MEMORY = 4096
"""Outcomes that are remembered; older ones count half, and half again."""


def kind_of(node: Node) -> int:
    """Which pages a page is compared with."""
    return min(node.hits, NUM_KINDS - 1)


class ReuseOdds:
    """By kind, the share of pages that were used again before their turn to be evicted came.

    Counted are pages that could have been evicted. Those whose use a program had told of don't
    count, and neither do pages that something below them protected: who comes back to a
    conversation proves its last pages worth keeping, not the system prompt that all share.
    """

    def __init__(self) -> None:
        self._used = [1.0] * NUM_KINDS
        self._evicted = [1.0] * NUM_KINDS

    def __getitem__(self, kind: int) -> float:
        return self._used[kind] / (self._used[kind] + self._evicted[kind])

    def note_use(self, node: Node) -> None:
        """A held prefix is used that ends in ``node``; its holder is the only one to count."""
        below: Node | None = None
        while node.parent is not None and _could_go(node, below):
            if node.next_use is None and not node.dead:
                self._note(self._used, kind_of(node))
            below, node = node, node.parent

    def note_eviction(self, node: Node) -> None:
        """A page of which nothing was known is evicted."""
        self._note(self._evicted, kind_of(node))

    def _note(self, counts: list[float], kind: int) -> None:
        counts[kind] += 1
        if sum(self._used) + sum(self._evicted) > _MEMORY:
            self._used = [max(count / 2, 1.0) for count in self._used]
            self._evicted = [max(count / 2, 1.0) for count in self._evicted]


def _could_go(node: Node, below: Node | None) -> bool:
    """Whether nothing but the prefix at hand, whose next node is ``below``, keeps the node."""
    if below is None:
        return not node.children and node.holds == 1
    return len(node.children) == 1 and not node.holds and node.locked_children == 1

"""Reuse probability of cached pages, learned from the outcomes of similar pages."""

from __future__ import annotations

from ramet.runtime.cache.node import Node

NUM_KINDS = 4
"""Pages never used, used once, twice, or more often since they were cached."""

_MEMORY = 4096
"""Outcomes after which all counts are halved."""


def kind_of(node: Node) -> int:
    """The kind of a page, by how often it was used."""
    return min(node.hits, NUM_KINDS - 1)


class ReuseProbability:
    """By kind, the share of pages that were used again before they were evicted.

    Only pages that could have been evicted count: not those whose use a program had announced, nor
    those protected by pages below them. A conversation that goes on shows that its last pages were
    worth keeping, not the system prompt that all conversations share.
    """

    def __init__(self) -> None:
        self._used = [1.0] * NUM_KINDS
        self._evicted = [1.0] * NUM_KINDS

    def __getitem__(self, kind: int) -> float:
        return self._used[kind] / (self._used[kind] + self._evicted[kind])

    def note_use(self, node: Node) -> None:
        """Counts the use of a held prefix that ends in ``node``, if nothing else protects it."""
        below: Node | None = None
        while node.parent is not None and _is_unprotected(node, below):
            if node.next_use is None and not node.dead:
                self._note(self._used, kind_of(node))
            below, node = node, node.parent

    def note_eviction(self, node: Node) -> None:
        """Counts the eviction of a page whose future was unknown."""
        self._note(self._evicted, kind_of(node))

    def _note(self, counts: list[float], kind: int) -> None:
        counts[kind] += 1
        if sum(self._used) + sum(self._evicted) > _MEMORY:
            self._used = [max(count / 2, 1.0) for count in self._used]
            self._evicted = [max(count / 2, 1.0) for count in self._evicted]


def _is_unprotected(node: Node, below: Node | None) -> bool:
    """Whether only the used prefix, whose next node is ``below``, protects the node."""
    if below is None:
        return not node.children and node.holds == 1
    return len(node.children) == 1 and not node.holds and node.locked_children == 1

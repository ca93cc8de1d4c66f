"""A view of the tree for people: runs of pages without a branch are one node."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from ramet.runtime.cache.node import NEVER, TOKEN_BYTES, Node

MAX_NODES = 1_000
HEAD_LEN = 48
"""Tokens at a node's beginning that a view holds."""


@dataclass(frozen=True, slots=True)
class NodeView:
    """Pages that follow each other without a branch.

    Attributes:
        id: the first page: the same in the next view, unless it was evicted in between.
        parent: the ``id`` of the node before it; None: a prompt begins here.
        namespace: whose prefixes these are.
        num_tokens, num_pages: how long it is.
        age: uses of the whole cache since its last one.
        hits: requests that started from it.
        is_held: a request runs on it, so that it can't be evicted.
        next_use: uses of the whole cache until a program uses it again; None: unknown.
        head: its first ``HEAD_LEN`` token ids.
    """

    id: int
    parent: int | None
    namespace: str
    num_tokens: int
    num_pages: int
    age: int
    hits: int
    is_held: bool
    next_use: float | None
    head: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CacheView:
    """The nodes used last, with all those above them.

    Attributes:
        nodes: parents before children.
        num_left_out: nodes beyond ``MAX_NODES``.
    """

    nodes: tuple[NodeView, ...]
    num_left_out: int


def view_of(roots: Iterable[Node], clock: int, max_nodes: int = MAX_NODES) -> CacheView:
    """The view of a forest, whose roots have their namespaces for keys.

    It walks all pages: some hundred nanoseconds each.
    """
    found: list[NodeView] = []
    ages: dict[int, int] = {}
    for root in roots:
        namespace = root.key.decode()
        pending: list[tuple[Node, int | None]] = [(each, None) for each in root.children.values()]
        while pending:
            first, parent = pending.pop()
            chain = _chain(first)
            last = chain[-1]
            pending += ((each, first.page) for each in last.children.values())
            ages[first.page] = clock - last.last_use
            head = b"".join(each.key for each in chain[:HEAD_LEN])[: HEAD_LEN * TOKEN_BYTES]
            due = last.next_use
            found.append(
                NodeView(
                    id=first.page,
                    parent=parent,
                    namespace=namespace,
                    num_tokens=sum(each.num_tokens for each in chain),
                    num_pages=len(chain),
                    age=0,
                    hits=first.hits,
                    is_held=first.locked,
                    next_use=None if due is None or due == NEVER else max(0.0, due - clock),
                    head=tuple(np.frombuffer(head, dtype=">i4").tolist()),
                )
            )
    for node in reversed(found):  # only the end of a used prefix notes its use
        if node.parent is not None:
            ages[node.parent] = min(ages[node.parent], ages[node.id])
    found = [replace(each, age=ages[each.id]) for each in found]
    kept = _with_parents(found, max_nodes)
    return CacheView(tuple(each for each in found if each.id in kept), len(found) - len(kept))


def _chain(node: Node) -> list[Node]:
    """A node and those below it up to a branch, a prefix that is held, or the end."""
    chain = [node]
    while len(node.children) == 1 and not node.holds:
        (node,) = node.children.values()
        chain.append(node)
    return chain


def _with_parents(nodes: list[NodeView], count: int) -> set[int]:
    """The ids of about ``count`` nodes: the youngest, and all above them."""
    if len(nodes) <= count:
        return {each.id for each in nodes}
    parents = {each.id: each.parent for each in nodes}
    kept: set[int] = set()
    for node in heapq.nsmallest(count, nodes, key=lambda each: each.age):
        place: int | None = node.id
        while place is not None and place not in kept:
            kept.add(place)
            place = parents[place]
        if len(kept) >= count:
            break
    return kept

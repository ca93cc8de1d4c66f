"""A node of the radix tree, and the handle that callers get to see."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

TOKEN_BYTES = 4
"""Bytes a token takes in a node's key."""

NEVER = float("inf")
"""The next use of a page that no program will use again."""


def token_key(token_ids: npt.ArrayLike) -> bytes:
    """Token ids as bytes that sort as the ids do: big-endian, four bytes each."""
    return np.asarray(token_ids, dtype=">i4").tobytes()


def common_len(left: bytes, right: bytes) -> int:
    """Number of leading tokens that two keys share."""
    size = min(len(left), len(right))
    difference = int.from_bytes(left[:size]) ^ int.from_bytes(right[:size])
    return (size - (difference.bit_length() + 7) // 8) // TOKEN_BYTES


class Node:
    """One page of a cached prefix.

    ``key`` is the page's tokens: a full page's for an inner node, perhaps fewer for a leaf. No
    key is a prefix of a sibling's. A node is *locked* while it or a node below it is held.
    A root has no page, and its namespace for a key.
    """

    __slots__ = (
        "children",
        "dead_since",
        "depth",
        "detached",
        "hits",
        "holds",
        "key",
        "last_use",
        "locked_children",
        "next_use",
        "page",
        "parent",
        "queue_serial",
        "sorted_keys",
        "uses",
    )

    def __init__(self, key: bytes, page: int, parent: Node | None, now: int) -> None:
        self.key = key
        self.page = page
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.children: dict[bytes, Node] = {}
        self.sorted_keys: list[bytes] = []
        self.hits = 0
        self.holds = 0
        self.locked_children = 0
        self.detached = False
        self.last_use = now
        self.next_use: float | None = None
        self.uses = 0
        self.dead_since = -1
        self.queue_serial = 0

    @property
    def locked(self) -> bool:
        return self.holds > 0 or self.locked_children > 0

    @property
    def evictable(self) -> bool:
        return not (self.locked or self.children or self.detached or self.parent is None)

    @property
    def num_tokens(self) -> int:
        return len(self.key) // TOKEN_BYTES

    @property
    def dead(self) -> bool:
        """Forgotten by its program, and not used since."""
        return self.dead_since >= self.last_use

    def add_child(self, child: Node) -> None:
        self.children[child.key] = child
        insort(self.sorted_keys, child.key)

    def remove_child(self, child: Node) -> None:
        del self.children[child.key]
        del self.sorted_keys[bisect_left(self.sorted_keys, child.key)]

    def closest_child(self, key: bytes) -> tuple[Node | None, int]:
        """The child that shares the most leading tokens with ``key``, and how many.

        In sorted order the longest common prefix is with a neighbour of where the key would be.
        """
        index = bisect_left(self.sorted_keys, key)
        best: Node | None = None
        best_len = 0
        for neighbour in self.sorted_keys[max(0, index - 1) : index + 1]:
            length = common_len(neighbour, key)
            if length > best_len:
                best, best_len = self.children[neighbour], length
        return best, best_len

    def prefix_child(self, key: bytes) -> Node | None:
        """The child whose key is a proper prefix of ``key``; there is at most one."""
        index = bisect_left(self.sorted_keys, key)
        if index and key.startswith(self.sorted_keys[index - 1]):
            return self.children[self.sorted_keys[index - 1]]
        return None

    def extending_child(self, key: bytes) -> Node | None:
        """A child whose key begins with ``key``."""
        index = bisect_left(self.sorted_keys, key)
        if index < len(self.sorted_keys) and self.sorted_keys[index].startswith(key):
            return self.children[self.sorted_keys[index]]
        return None


@dataclass(frozen=True, slots=True)
class PrefixHandle:
    """A cached prefix: its first ``matched_len`` tokens end in ``node``'s page.

    Where ``matched_len`` is no multiple of the page size, ``node``'s page is to be copied, as far
    as it is shared, before anything is written after it.
    """

    node: Node
    matched_len: int

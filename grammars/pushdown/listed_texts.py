"""Long lists of texts as a lazy trie: only visited nodes are created."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from ramet.grammars.errors import ConstraintError

from .rows import DEAD, Row
from .state_table import Lexeme, StateTable

_AFTER = b"\xff"
"""Follows every byte of UTF-8."""

_CONTINUATIONS = frozenset(bytes((byte,)) for byte in range(0x80, 0xC0))


class ListedTexts:
    """Sorted texts with labels. A node of their trie is the first text below it, and a depth."""

    def __init__(self, labels: Mapping[str, int], cost: Callable[[bytes], int] = len) -> None:
        """``cost`` is the length of a text as it is written."""
        try:
            encoded = sorted((text.encode(), label) for text, label in labels.items())
        except UnicodeEncodeError:
            raise ConstraintError("", "text", "a lone surrogate is not text") from None
        self.texts = [text for text, _ in encoded]
        self.labels = np.array([label for _, label in encoded], np.int32)
        self._lengths = list(map(len, self.texts))
        self._costs = np.array([cost(text) for text in self.texts], np.int64)
        self.stride = max(self._lengths, default=0) + 1
        self._has_one_label = bool((self.labels == self.labels[0]).all())

    @property
    def digest(self) -> bytes:
        """Equal for equal texts with equal labels."""
        digest = hashlib.blake2b(_AFTER.join(self.texts), digest_size=20)
        digest.update(self.labels.tobytes())
        return digest.digest()

    def range_of(self, node: int) -> tuple[int, int, int]:
        """The texts below a node, from the first to before the last, and the node's depth."""
        first, depth = divmod(node, self.stride)
        return first, self.end(first, self.texts[first][:depth]), depth

    def end(self, first: int, prefix: bytes) -> int:
        """The end of the texts from ``first`` on that begin with a prefix."""
        return bisect_left(self.texts, prefix + _AFTER, first) if prefix else len(self.texts)

    def label(self, node: int) -> int | None:
        """The label of the text that is complete at a node; None if there is none."""
        first, depth = divmod(node, self.stride)
        return int(self.labels[first]) if self._lengths[first] == depth else None

    def children(self, node: int) -> Iterator[tuple[int, int]]:
        """The bytes that may follow, each with the node after it."""
        first, last, depth = self.range_of(node)
        prefix = self.texts[first][:depth]
        at = first + (self._lengths[first] == depth)
        while at < last:
            byte = self.texts[at][depth]
            yield byte, at * self.stride + depth + 1
            at = bisect_left(self.texts, prefix + bytes((byte,)) + _AFTER, at, last)

    def is_at_border(self, node: int) -> bool:
        """Whether a node is between two characters."""
        first, depth = divmod(node, self.stride)
        return self.texts[first][depth : depth + 1] not in _CONTINUATIONS

    def label_bits(self, node: int) -> int:
        """The labels of the texts below a node, as bits."""
        if self._has_one_label:
            return 1 << int(self.labels[0])
        first, last, _ = self.range_of(node)
        return sum(1 << label for label in np.unique(self.labels[first:last]).tolist())

    def shortest(self, node: int) -> Iterator[tuple[bytes, int]]:
        """By label, the rest of a shortest text below a node."""
        first, last, depth = self.range_of(node)
        costs, labels = self._costs[first:last], self.labels[first:last]
        order = np.lexsort((costs, labels))
        _, firsts = np.unique(labels[order], return_index=True)
        for index in order[firsts].tolist():
            yield self.texts[first + index][depth:], int(labels[index])


class ListedLexeme(Lexeme):
    """A lexeme that is one of some texts, and ends with label 0 where one is complete."""

    has_ends = True

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = ListedTexts(dict.fromkeys(texts, 0))
        self.key = ("listed", self._texts.digest)

    def install(self, state_table: StateTable) -> int:
        return state_table.reserve(self, 0)

    def fill(self, state_table: StateTable, local: int, row: Row) -> int:
        row[:] = DEAD
        for byte, node in self._texts.children(local):
            row[byte] = state_table.reserve(self, node)
        return -1 if self._texts.label(local) is None else 0

    def ends(self, local: int) -> list[tuple[bytes, int, bool]] | None:
        return [(text, label, True) for text, label in self._texts.shortest(local)]

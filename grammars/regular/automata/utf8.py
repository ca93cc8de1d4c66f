"""Sets of code points, and their UTF-8 spellings as byte automata.

A set is a tuple of inclusive ranges, sorted, disjoint and never adjacent: ``((48, 57),)`` is the
digits. Surrogates are no part of any text, so they are dropped wherever bytes are made.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

Ranges = tuple[tuple[int, int], ...]

MAX_CODE_POINT = 0x10FFFF
ALL: Ranges = ((0, MAX_CODE_POINT),)
SURROGATES: Ranges = ((0xD800, 0xDFFF),)


def normalised(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Any ranges as a set: sorted, merged."""
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            if high > merged[-1][1]:
                merged[-1] = (merged[-1][0], high)
        else:
            merged.append((low, high))
    return tuple(merged)


def negated(ranges: Ranges) -> Ranges:
    """Every code point that is not in the set."""
    gaps = []
    low = 0
    for first, last in ranges:
        if first > low:
            gaps.append((low, first - 1))
        low = last + 1
    if low <= MAX_CODE_POINT:
        gaps.append((low, MAX_CODE_POINT))
    return tuple(gaps)


def common(a: Ranges, b: Ranges) -> Ranges:
    """The code points of both sets."""
    return negated(normalised(negated(a) + negated(b)))


def contains(ranges: Ranges, code_point: int) -> bool:
    return any(low <= code_point <= high for low, high in ranges)


ByteEdge = tuple[int, int, int, int]
"""Source, first byte, last byte, target."""

_END = 1
_BLOCK = 64


@lru_cache(maxsize=4096)
def byte_edges(ranges: Ranges) -> tuple[int, tuple[ByteEdge, ...]]:
    """The automaton of one code point of the set: states, edges. Starts in 0, ends in 1."""
    return _Utf8().build(common(ranges, negated(SURROGATES)))


class _Utf8:
    """Builds one set's automaton; equal tails are one state."""

    def __init__(self) -> None:
        self.edges: list[ByteEdge] = []
        self.num_states = 2
        self.known: dict[tuple[tuple[int, int, int], ...], int] = {}

    def build(self, ranges: Ranges) -> tuple[int, tuple[ByteEdge, ...]]:
        for length, low, high, lead in (
            (0, 0x0, 0x7F, 0x00),
            (1, 0x80, 0x7FF, 0xC0),
            (2, 0x800, 0xFFFF, 0xE0),
            (3, 0x10000, 0x10FFFF, 0xF0),
        ):
            part = [(max(low, a), min(high, b)) for a, b in ranges if a <= high and b >= low]
            self.edges += [(0, lead + a, lead + b, t) for a, b, t in self._blocks(part, length)]
        return self.num_states, tuple(self.edges)

    def _blocks(self, ranges: list[tuple[int, int]], length: int) -> list[tuple[int, int, int]]:
        """First byte's value, last one's, target: of the sets that ``length`` bytes follow."""
        if length == 0:
            return [(low, high, _END) for low, high in ranges]
        size = _BLOCK**length
        parts: list[tuple[int, int, list[tuple[int, int]]]] = []

        def add(first: int, last: int, inner: tuple[int, int]) -> None:
            if parts and parts[-1][0] == first == last == parts[-1][1]:
                parts[-1][2].append(inner)
            else:
                parts.append((first, last, [inner]))

        for low, high in ranges:
            first, last = low // size, high // size
            if first == last:
                add(first, first, (low % size, high % size))
                continue
            if low % size:
                add(first, first, (low % size, size - 1))
                first += 1
            full = last if high % size < size - 1 else last + 1
            if first < full:
                add(first, full - 1, (0, size - 1))
            if full == last:
                add(last, last, (0, high % size))
        merged: list[tuple[int, int, int]] = []
        for first, last, inner in parts:
            target = self._state(inner, length - 1)
            if merged and merged[-1][1] + 1 == first and merged[-1][2] == target:
                merged[-1] = (merged[-1][0], last, target)
            else:
                merged.append((first, last, target))
        return merged

    def _state(self, ranges: list[tuple[int, int]], length: int) -> int:
        """The state before the last ``length + 1`` bytes."""
        blocks = tuple(self._blocks(ranges, length))
        state = self.known.get(blocks)
        if state is None:
            state = self.known[blocks] = self.num_states
            self.num_states += 1
            self.edges += [(state, 0x80 + a, 0x80 + b, t) for a, b, t in blocks]
        return state

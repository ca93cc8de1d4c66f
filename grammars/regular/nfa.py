"""``NfaBuilder``: automata by construction, made deterministic in one go."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from . import _kernels
from .dfa import Dfa
from .limits import DEFAULT_LIMITS, RegularLimits, too_complex
from .utf8 import ByteEdge, Ranges, byte_edges

_MAX_NFA_FACTOR = 8
"""States of an NFA per state that a deterministic automaton may have."""


class NfaBuilder:
    """Grows an automaton piece by piece: each piece starts at a state and returns its end.

    Attributes:
        edges: moves on a range of bytes.
        empty_moves: moves on nothing, as (source, target).
        num_states: states so far.
        start: the start state, which the caller sets.
    """

    def __init__(self, limits: RegularLimits = DEFAULT_LIMITS) -> None:
        self.limits = limits
        self.edges: list[ByteEdge] = []
        self.empty_moves: list[tuple[int, int]] = []
        self.num_states = 0
        self.start = 0

    def new_state(self) -> int:
        self.num_states += 1
        return self.num_states - 1

    def empty_move(self, source: int, target: int) -> None:
        self.empty_moves.append((source, target))

    def byte_range(self, low: int, high: int, source: int) -> int:
        """One byte from ``low`` to ``high``."""
        target = self.new_state()
        self.edges.append((source, low, high, target))
        return target

    def characters(self, ranges: Ranges, source: int) -> int:
        """One code point of a set, in UTF-8."""
        num_states, edges = byte_edges(ranges)
        offset = self.num_states - 1  # Local state 0 is ``source``; 1 is the first new one.
        self.num_states += num_states - 1
        self.edges += [(s + offset if s else source, a, b, t + offset) for s, a, b, t in edges]
        return offset + 1

    def literal(self, text: bytes, source: int) -> int:
        """One text."""
        for byte in text:
            source = self.byte_range(byte, byte, source)
        return source

    def dfa(self, part: Dfa, source: int) -> int:
        """A member of an automaton's language."""
        offset = self.num_states
        self.num_states += part.num_states + 1
        self._check_size(0)
        end = self.num_states - 1
        if part.is_empty:
            return end
        self.empty_moves.append((source, offset))
        runs = _runs(part.class_of)
        rows = part.table.tolist()
        for state, row in enumerate(rows):
            self.edges += [
                (offset + state, low, high, offset + row[c]) for low, high, c in runs if row[c] >= 0
            ]
        self.empty_moves += [(offset + s, end) for s in np.flatnonzero(part.accepting).tolist()]
        return end

    def repeat(
        self,
        piece: Callable[[NfaBuilder, int], int],
        source: int,
        minimum: int,
        maximum: int | None,
    ) -> int:
        """``piece`` in a row, ``minimum`` to ``maximum`` times (None: any number)."""
        if maximum == 0:
            return source
        copies = maximum if maximum is not None else max(minimum, 1)
        # One copy is built by ``piece``; the others are the same with other numbers.
        first_edge, first_empty, base = len(self.edges), len(self.empty_moves), self.num_states
        entry = self.new_state()
        exit_ = piece(self, entry)
        size = self.num_states - base
        self._check_size(size * (copies - 1))
        edges = self.edges[first_edge:]
        empty = self.empty_moves[first_empty:]
        self.empty_moves.append((source, entry))
        for k in range(1, copies):
            d = size * k
            self.edges += [(s + d, a, b, t + d) for s, a, b, t in edges]
            self.empty_moves += [(s + d, t + d) for s, t in empty]
            self.empty_moves.append((exit_ + d - size, entry + d))
        self.num_states += size * (copies - 1)
        last = size * (copies - 1)
        end = self.new_state()
        self.empty_moves.append((exit_ + last, end))
        if maximum is None:
            # The last copy may come again; with a minimum of 0 it may also be left out.
            self.empty_moves.append((exit_ + last, entry + last))
            if minimum == 0:
                self.empty_moves.append((source, end))
        else:
            for k in range(minimum, copies):
                self.empty_moves.append((entry + size * k if k else source, end))
        return end

    def _check_size(self, more: int) -> None:
        if self.num_states + more > self.limits.max_states * _MAX_NFA_FACTOR:
            raise too_complex("a repetition", self.limits)

    def build(self, end: int) -> Dfa:
        """The minimal deterministic automaton of the texts that lead from ``start`` to ``end``."""
        final = np.zeros(self.num_states, np.bool_)
        final[end] = True
        return self.build_for(final)

    def build_for(self, final: NDArray[np.bool_]) -> Dfa:
        """The same with any set of final states."""
        edges = np.array(self.edges, np.int32).reshape(-1, 4)
        empty = np.array(self.empty_moves, np.int32).reshape(-1, 2)
        borders = np.zeros(257, np.bool_)
        borders[edges[:, 1]] = True
        borders[edges[:, 2] + 1] = True
        borders[0] = True
        class_of = (np.cumsum(borders[:256]) - 1).astype(np.uint8)
        num_classes = int(class_of[-1]) + 1
        order = np.argsort(edges[:, 0], kind="stable")
        edges = edges[order]
        empty = empty[np.argsort(empty[:, 0], kind="stable")]
        states = np.arange(self.num_states + 1)
        limits = self.limits
        status, table, accepting = _kernels.determinise(
            np.searchsorted(edges[:, 0], states).astype(np.int64),
            class_of[edges[:, 1]].astype(np.int32),
            class_of[edges[:, 2]].astype(np.int32),
            np.ascontiguousarray(edges[:, 3]),
            np.searchsorted(empty[:, 0], states).astype(np.int64),
            np.ascontiguousarray(empty[:, 1]),
            final, self.start, num_classes, limits.states_for(num_classes), limits.max_work,
        )  # fmt: skip
        if status:
            raise too_complex("the automaton", limits)
        return Dfa.from_table(class_of, table, accepting)


def _runs(class_of: NDArray[np.uint8]) -> list[tuple[int, int, int]]:
    """First byte, last byte and class of each run of bytes of one class."""
    starts = np.flatnonzero(np.diff(class_of.astype(np.int16), prepend=-1))
    ends = np.append(starts[1:], 256) - 1
    return [(int(a), int(b), int(class_of[a])) for a, b in zip(starts, ends, strict=True)]

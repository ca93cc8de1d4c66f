"""``NfaBuilder``: nondeterministic automata by construction, then determinised."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ramet.grammars.limits import DEFAULT_LIMITS, RegularLimits, too_complex
from ramet.grammars.regular.loops import canonical, subsets

from .dfa import Dfa
from .utf8 import ALL, ByteEdge, Ranges, byte_edges

_MAX_NFA_FACTOR = 8
"""States of an NFA per state that a deterministic automaton may have."""


class NfaBuilder:
    """Grows an automaton piece by piece: each piece starts at a state and returns its end.

    Attributes:
        edges: transitions on a range of bytes.
        edge_blocks: more of them, as int32[num_edges, 4] arrays.
        epsilon_edges: transitions on nothing, as (source, target).
        num_states: states so far.
        start: the start state, which the caller sets.
        absorbing: a state from which every text is accepted, if there is one; else -1. Sets of
            states that have it need no other, which keeps automata that search small.
    """

    def __init__(self, limits: RegularLimits = DEFAULT_LIMITS) -> None:
        self.limits = limits
        self.edges: list[ByteEdge] = []
        self.edge_blocks: list[NDArray[np.int32]] = []
        self.epsilon_edges: list[tuple[int, int]] = []
        self.num_states = 0
        self.start = 0
        self.absorbing = -1

    def new_states(self, count: int) -> int:
        """The first of some new states."""
        self.num_states += count
        return self.num_states - count

    def new_state(self) -> int:
        self.num_states += 1
        return self.num_states - 1

    def epsilon_edge(self, source: int, target: int) -> None:
        self.epsilon_edges.append((source, target))

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

    def any_text(self) -> int:
        """The absorbing state: every text leads from it to it. It must be an end."""
        if self.absorbing < 0:
            self.absorbing = self.new_state()
            self.epsilon_edge(self.characters(ALL, self.absorbing), self.absorbing)
        return self.absorbing

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
        self.epsilon_edges.append((source, offset))
        self.edge_blocks.append(part.edges + np.array([offset, 0, 0, offset], np.int32))
        self.epsilon_edges += [(offset + s, end) for s in part.finals]
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
        first_edge, first_block = len(self.edges), len(self.edge_blocks)
        first_empty, base = len(self.epsilon_edges), self.num_states
        entry = self.new_state()
        exit_ = piece(self, entry)
        size = self.num_states - base
        self._check_size(size * (copies - 1))
        if copies > 1:
            shifts = size * np.arange(1, copies, dtype=np.int32)[:, None, None]
            edges = _stacked(self.edges[first_edge:], self.edge_blocks[first_block:])
            empty = np.array(self.epsilon_edges[first_empty:], np.int32).reshape(-1, 2)
            shifted = edges[None] + shifts * np.array([1, 0, 0, 1], np.int32)
            self.edge_blocks.append(shifted.reshape(-1, 4))
            self.epsilon_edges += [
                (s, t) for s, t in (empty[None] + shifts).reshape(-1, 2).tolist()
            ]
            self.epsilon_edges += [
                (exit_ + size * k, entry + size * (k + 1)) for k in range(copies - 1)
            ]
        self.epsilon_edges.append((source, entry))
        self.num_states += size * (copies - 1)
        last = size * (copies - 1)
        end = self.new_state()
        self.epsilon_edges.append((exit_ + last, end))
        if maximum is None:
            # The last copy may come again; with a minimum of 0 it may also be left out.
            self.epsilon_edges.append((exit_ + last, entry + last))
            if minimum == 0:
                self.epsilon_edges.append((source, end))
        else:
            for k in range(minimum, copies):
                self.epsilon_edges.append((entry + size * k if k else source, end))
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
        class_of, table, accepting = self._determinised(final, 256)
        return Dfa.from_table(class_of, table, accepting)

    def minimal_table(
        self, final: NDArray[np.bool_], num_symbols: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.bool_]]:
        """The same for any symbols 0 to ``num_symbols - 1`` instead of bytes.

        Returns:
            Each symbol's class, the minimal table by classes, and the accepting states.
        """
        class_of, table, accepting = self._determinised(final, num_symbols)
        class_of, table, accepting = canonical.canonicalise(class_of, table, accepting, 0)
        return class_of, table, accepting

    def _determinised(
        self, final: NDArray[np.bool_], num_symbols: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.bool_]]:
        edges = _stacked(self.edges, self.edge_blocks)
        empty = np.array(self.epsilon_edges, np.int32).reshape(-1, 2)
        borders = np.zeros(num_symbols + 1, np.bool_)
        borders[edges[:, 1]] = True
        borders[edges[:, 2] + 1] = True
        borders[0] = True
        class_of = np.cumsum(borders[:num_symbols]) - 1
        num_classes = int(class_of[-1]) + 1
        edges = edges[np.argsort(edges[:, 0], kind="stable")]
        empty = empty[np.argsort(empty[:, 0], kind="stable")]
        states = np.arange(self.num_states + 1)
        limits = self.limits
        status, table, accepting = subsets.determinise(
            np.searchsorted(edges[:, 0], states).astype(np.int64),
            class_of[edges[:, 1]].astype(np.int32),
            class_of[edges[:, 2]].astype(np.int32),
            np.ascontiguousarray(edges[:, 3]),
            np.searchsorted(empty[:, 0], states).astype(np.int64),
            np.ascontiguousarray(empty[:, 1]),
            final, self.start, num_classes, limits.states_for(num_classes), limits.max_work,
            self.absorbing,
        )  # fmt: skip
        if status:
            raise too_complex("the automaton", limits)
        return class_of, table, accepting


def _stacked(tuples: list[ByteEdge], blocks: list[NDArray[np.int32]]) -> NDArray[np.int32]:
    return np.concatenate([np.array(tuples, np.int32).reshape(-1, 4), *blocks])

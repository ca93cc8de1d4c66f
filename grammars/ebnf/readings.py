"""The readings of texts: configurations, their closures, and sets of them, all numbered.

A configuration is (node of the network, stack of the nodes to return to); see ``automaton.py`` for
what they mean. Stacks are cells of a shared tree.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ramet.grammars.errors import GrammarTooComplexError

from . import reading_loops
from .network import Network
from .reading_loops import (
    ACCEPT_NODE,
    CELLS,
    CONFIGURATIONS,
    DONE,
    MAX_READINGS,
    NEED_TRANSITIONS,
    REQUESTED,
    SETS,
    TOO_MANY,
    close,
    index_pairs,
    index_sets,
    interned,
    interned_set,
    write_row,
)

_MAX_KEPT = 1 << 24
"""Approximate bound on the cached members of sets and closures; 4 bytes each."""


class Readings:
    """Sets of the configurations of one network, numbered as they are met.

    Foreign nodes are described by ``foreign``: whether something may end in each. Their
    transitions are supplied when they are needed.
    """

    def __init__(self, network: Network, loops: frozenset[int], num_foreign: int) -> None:
        self._class_of, self._transitions = network.class_of, network.table
        counts = [len(transitions) for transitions in network.call_transitions]
        self._call_starts = np.concatenate(([0], np.cumsum(counts, dtype=np.int64))).astype(
            np.int32
        )
        calls = [call for transitions in network.call_transitions for call in transitions]
        self._calls = np.array(calls, np.int32).reshape(-1, 2)
        self._is_final = network.is_final
        self._is_bare: NDArray[np.bool_] = np.asarray((network.table < 0).all(axis=1))
        self._is_loop = np.zeros(network.num_nodes, np.bool_)
        self._is_loop[list(loops)] = True
        self._may_end = np.zeros(num_foreign + 1, np.bool_)
        self._has_transitions = np.zeros(num_foreign + 1, np.bool_)
        self._foreign_transitions = np.full((num_foreign + 1, 256), -1, np.int32)
        self._counts = np.zeros(7, np.int64)
        self._cells = np.empty((256, 2), np.int32)
        self._configurations = np.empty((1024, 2), np.int32)
        self._closures = np.full((1024, 2), -1, np.int32)
        self._closed = np.empty(4096, np.int32)
        self._seen = np.zeros(1024, np.int32)
        self._sets = np.empty((256, 2), np.int32)
        self._items = np.empty(4096, np.int32)
        self._found = np.empty(MAX_READINGS, np.int32)
        self._cells[0] = self._configurations[0] = (ACCEPT_NODE, 0)
        self._closures[0] = (0, 1)
        self._closed[0] = 0
        self._counts[:3] = 1
        self._index()

    def _index(self) -> None:
        self._cell_slots = _slots(self._cells)
        self._configuration_slots = _slots(self._configurations)
        self._set_slots = _slots(self._sets)
        index_pairs(self._cells, self._counts[CELLS], self._cell_slots)
        index_pairs(self._configurations, self._counts[CONFIGURATIONS], self._configuration_slots)
        index_sets(self._sets, self._counts[SETS], self._items, self._set_slots)

    def _make_room(self) -> None:
        """Twice as much of what there was no room for."""
        if max(len(self._items), len(self._closed)) > _MAX_KEPT:
            raise GrammarTooComplexError("", "ebnf", "the texts' readings take too much memory")
        match int(self._counts[REQUESTED]):
            case reading_loops.CELLS:
                self._cells = _doubled(self._cells)
            case reading_loops.CONFIGURATIONS:
                self._configurations = _doubled(self._configurations)
                self._closures = _doubled(self._closures)
                self._seen = _doubled(self._seen)
            case reading_loops.CLOSED:
                self._closed = _doubled(self._closed)
            case reading_loops.SETS:
                self._sets = _doubled(self._sets)
            case _:
                self._items = _doubled(self._items)
        self._index()

    @property
    def _store(self) -> tuple[NDArray[Any], ...]:
        return (
            self._call_starts, self._calls, self._is_final, self._is_bare,
            self._is_loop, self._may_end, self._cells, self._cell_slots, self._configurations,
            self._configuration_slots, self._closures, self._closed, self._seen, self._counts,
        )  # fmt: skip

    def row(self, number: int) -> NDArray[np.int32] | int:
        """int32[256]: for each byte the set after it, -1 for none; or a foreign node (below -1)
        whose transitions are needed first."""
        row = np.empty(256, np.int32)
        while True:
            status = write_row(
                number, self._class_of, self._transitions, self._foreign_transitions,
                self._has_transitions, row, self._found, self._sets, self._set_slots, self._items,
                *self._store,
            )  # fmt: skip
            if status == DONE:
                return row
            if status == NEED_TRANSITIONS:
                return int(self._counts[REQUESTED])
            self._more(status)

    def _more(self, status: int) -> None:
        if status == TOO_MANY:
            raise GrammarTooComplexError("", "ebnf", "the text has too many readings")
        self._make_room()

    def close(self, node: int, stack: int) -> list[tuple[int, int]]:
        """A configuration's closure before its next byte."""
        number = self.configuration(node, stack)
        while self._closures[number, 0] < 0:
            status = close(number, *self._store)
            if status != DONE:
                self._more(status)
        start, size = self._closures[number].tolist()
        return self._pairs(self._closed[start : start + size])

    def _pairs(self, numbers: NDArray[np.int32]) -> list[tuple[int, int]]:
        return [(node, stack) for node, stack in self._configurations[numbers].tolist()]

    def configuration(self, node: int, stack: int) -> int:
        """The number of a configuration."""
        while True:
            number = interned(
                self._configurations, self._configuration_slots, self._counts, CONFIGURATIONS,
                node, stack,
            )  # fmt: skip
            if number >= 0:
                return int(number)
            self._make_room()

    def stack(self, node: int, rest: int) -> int:
        """The stack that returns to a node, and then to the rest."""
        while True:
            number = interned(
                self._cells, self._cell_slots, self._counts, reading_loops.CELLS, node, rest
            )
            if number >= 0:
                return int(number)
            self._make_room()

    def set_of(self, configurations: list[int]) -> int:
        """The number of a set."""
        while True:
            found = np.array(configurations, np.int32)
            number = interned_set(
                found, len(found), self._sets, self._set_slots, self._items, self._counts
            )
            if number >= 0:
                return int(number)
            self._make_room()

    def members(self, number: int) -> list[tuple[int, int]]:
        """The configurations of a set."""
        start, size = self._sets[number].tolist()
        return self._pairs(self._items[start : start + size])

    def accepts(self, number: int) -> bool:
        """Whether a set has the reading of a text that is complete: its first, if any."""
        start, size = self._sets[number].tolist()
        return size > 0 and bool(self._items[start] == 0)

    def returns_to(self, stack: int) -> tuple[int, int]:
        """The configuration to which a stack returns."""
        node, rest = self._cells[stack].tolist()
        return node, rest

    def add_foreign(self, index: int, *, may_end: bool) -> None:
        """Let something foreign be known, of the given index."""
        while index >= len(self._may_end):
            size = len(self._may_end)
            self._may_end = _doubled(self._may_end)
            self._has_transitions = _doubled(self._has_transitions)
            self._foreign_transitions = _doubled(self._foreign_transitions)
            self._may_end[size:] = self._has_transitions[size:] = False
            self._foreign_transitions[size:] = -1
        self._may_end[index] = may_end

    def set_transitions(self, index: int, transitions: list[tuple[NDArray[np.bool_], int]]) -> None:
        """Give the transitions of something foreign: sets of bytes, and the nodes after them."""
        for found, target in transitions:
            self._foreign_transitions[index, found] = target
        self._has_transitions[index] = True


def _slots(array: NDArray[np.int32]) -> NDArray[np.int32]:
    return np.full(4 * len(array), -1, np.int32)


def _doubled(array: NDArray) -> NDArray:  # type: ignore[type-arg]
    bigger = np.full(
        (2 * len(array), *array.shape[1:]), -1 if array.dtype == np.int32 else 0, array.dtype
    )
    bigger[: len(array)] = array
    return bigger


def _unused(array: NDArray) -> int:  # type: ignore[type-arg]
    return 0 if array.dtype == np.bool_ else -1

"""A large ``Dfa`` whose states are added to a state table only when they are read."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ramet.grammars.regular import Dfa

from .rows import Row


class DfaAutomaton:
    """A ``Dfa`` as an ``Automaton`` (see ``automaton.py``)."""

    def __init__(self, dfa: Dfa) -> None:
        self._dfa = dfa

    @property
    def key(self) -> Hashable:
        return ("large dfa", self._dfa.digest)

    @property
    def start(self) -> int:
        return self._dfa.start

    def row(self, state: int) -> Row:
        row: NDArray[np.int32] = self._dfa.table[state][self._dfa.class_of]
        return row

    def is_accepting(self, state: int) -> bool:
        return bool(self._dfa.accepting[state])

    def shortest_completion(self, state: int) -> bytes:
        text = bytearray()
        while self._distances[state]:
            row = self.row(state)
            nearer = (row >= 0) & (self._distances[row] < self._distances[state])
            byte = int(np.flatnonzero(nearer)[0])
            text.append(byte)
            state = int(row[byte])
        return bytes(text)

    @cached_property
    def _distances(self) -> NDArray[np.int64]:
        """By state, the fewest bytes to acceptance; each state of a minimal automaton has some."""
        dfa = self._dfa
        distances = np.where(dfa.accepting, 0, dfa.num_states)
        while True:
            after = np.where(dfa.table >= 0, distances[dfa.table], dfa.num_states).min(axis=1)
            shorter = np.minimum(distances, after + 1)
            if (shorter == distances).all():
                found: NDArray[np.int64] = shorter
                return found
            distances = shorter

"""The texts with which a lexeme can end, shortest first, found by breadth-first search."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ramet.grammars.pushdown.rows import DEAD, LAZY
from ramet.grammars.pushdown.state_table import LexemeEnd, StateTable
from ramet.grammars.pushdown.tables import END_LABEL

_MAX_TEXTS = 100_000
_MAX_ALIKE = 16
"""The number of bytes between the same two states that are tried for different texts."""

_ORDER = np.array(
    sorted(range(256), key=lambda byte: (not chr(byte).isalnum() or byte > 127, byte)), np.intp
)
"""Digits and letters first: of texts of one length, a readable one is preferred."""


_USUAL = np.frombuffer(b'"\\/,:;{}[]()<>-+._ 0123456789aeinrst', np.uint8)
"""The bytes that are tried where each byte's target has to be computed; few texts need others."""

_MAX_LAZY = 64
_LAZY_PER_WORK = 4


class SearchTooLongError(Exception):
    """A search for a completion has come to its limit of work."""


class Budget:
    """The remaining work of a search, in states and positions."""

    def __init__(self) -> None:
        self.left = 0

    def spend(self, work: int) -> None:
        """Raises ``SearchTooLongError`` once nothing is left."""
        self.left -= work
        if self.left < 0:
            raise SearchTooLongError


class LexemeEnds:
    """The ends that can be reached from one lexeme state, in order of length.

    States are visited once, so of the texts that lead to one state only the shortest is found;
    ``all_texts`` visits each text.
    """

    def __init__(self, state_table: StateTable, state: int, budget: Budget) -> None:
        self._state_table = state_table
        self._state = state
        self._budget = budget
        self._found: list[LexemeEnd] = []
        self._search = self._shortest()

    def get(self, index: int) -> LexemeEnd | None:
        """The end of this index; None if there are fewer."""
        while index >= len(self._found):
            end = next(self._search, None)
            if end is None:
                return None
            self._found.append(end)
        return self._found[index]

    def _shortest(self) -> Iterator[LexemeEnd]:
        seen = {self._state}
        level: list[tuple[int, bytes]] = [(self._state, b"")]
        known: list[LexemeEnd] = []
        while level:
            following: list[tuple[int, bytes]] = []
            level = self._searched(level, known)
            length = len(level[0][1]) if level else len(known and known[-1].text)
            while known and len(known[0].text) <= length:
                yield known.pop(0)
            for state, _ in level:
                self._resolve(state)
            for state, text in level:
                label = self._end_label(state)
                if label >= 0:
                    yield LexemeEnd(text, label, True)
            for state, text in level:
                yield from self._last_bytes(state, text)
            for state, text in level:
                for target, byte in self._targets(state):
                    if target not in seen:
                        seen.add(target)
                        following.append((target, text + bytes((byte,))))
            level = following
        yield from known

    def _searched(
        self, level: list[tuple[int, bytes]], known: list[LexemeEnd]
    ) -> list[tuple[int, bytes]]:
        """The states whose ends are to be searched; the ends of others join ``known``, in order."""
        searched = []
        for state, text in level:
            ends = self._state_table.shortest_ends(state)
            if ends is None:
                searched.append((state, text))
            else:
                known += [LexemeEnd(text + e.text, e.label, e.is_open) for e in ends]
                known.sort(key=lambda end: len(end.text))
        return searched

    def all_texts(self, label: int) -> Iterator[LexemeEnd]:
        """Different texts that end the lexeme with a label, in order of length, up to a bound."""
        level: list[tuple[int, bytes]] = [(self._state, b"")]
        num_texts = 0
        while level:
            following: list[tuple[int, bytes]] = []
            for state, text in level:
                self._resolve(state)
                if self._end_label(state) == label:
                    yield LexemeEnd(text, label, True)
                for end in self._last_bytes(state, text):
                    if end.label == label:
                        yield end
                num_alike: dict[int, int] = {}
                for byte in _ORDER.tolist():
                    if byte > 127 and num_alike:
                        break
                    target = int(self._state_table.rows[state, byte])
                    if target >= 0 and num_alike.setdefault(target, 0) < _MAX_ALIKE:
                        num_alike[target] += 1
                        following.append((target, text + bytes((byte,))))
                        num_texts += 1
                if num_texts > _MAX_TEXTS:
                    return
            level = following

    def _end_label(self, state: int) -> int:
        self._state_table.make_ready(state)
        return int(self._state_table.states[state, END_LABEL])

    def _last_bytes(self, state: int, text: bytes) -> Iterator[LexemeEnd]:
        """The ends with a last byte of their own, one a label."""
        row = self._state_table.rows[state]
        labels: set[int] = set()
        for byte in _ORDER[(row[_ORDER] < DEAD) & (row[_ORDER] != LAZY)].tolist():
            label = -2 - int(row[byte])
            if label not in labels:
                labels.add(label)
                yield LexemeEnd(text + bytes((byte,)), label, False)

    def _resolve(self, state: int) -> None:
        """Computes the lazy entries of a state's row, or of its usual bytes if there are many."""
        table = self._state_table
        table.make_ready(state)
        lazy = np.flatnonzero(table.rows[state] == LAZY)
        if len(lazy) > _MAX_LAZY:
            lazy = np.intersect1d(lazy, _USUAL)
        self._budget.spend(1 + len(lazy) // _LAZY_PER_WORK)
        for byte in lazy.tolist():
            table.target(state, byte)

    def _targets(self, state: int) -> Iterator[tuple[int, int]]:
        """The states that follow a state, each with one byte that leads there."""
        row = self._state_table.rows[state][_ORDER]
        targets, firsts = np.unique(row, return_index=True)
        for target, first in zip(targets.tolist(), firsts.tolist(), strict=True):
            if target >= 0:
                yield target, int(_ORDER[first])

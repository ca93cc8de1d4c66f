"""A string lexeme minus one string: excludes an object's name from occurring twice."""

from __future__ import annotations

import numpy as np

from ramet.grammars.pushdown.json_text import KEY_SLICE
from ramet.grammars.pushdown.rows import DEAD, LAZY, Row
from ramet.grammars.pushdown.state_table import StateTable
from ramet.grammars.pushdown.tables import REACH

from .literal_text import EXCLUDED, LiteralText
from .text_lexemes import BACKSLASH, QUOTE, TextLexeme, is_endless


def excluding(state_table: StateTable, names: TextLexeme, name: str) -> TextLexeme:
    """``names`` without ``name``."""
    if name and all("\x20" <= c <= "\x7e" and c not in '"\\/' for c in name):
        return _ExcludedText(state_table, names, name)
    return LiteralText(names.closing, {name: EXCLUDED}, names, state_table)


class _ExcludedText(TextLexeme):
    """A base without one string that has a single spelling.

    The states along that string are copies of the base's; the last one lacks its closing quote.
    """

    slice = KEY_SLICE

    def __init__(self, state_table: StateTable, base: TextLexeme, name: str) -> None:
        self.closing = base.closing
        self._base_start = state_table.install(base)
        self._name = name.encode()
        self._bases: list[int] = []
        # Named by the base's first state: its own key would grow with each name.
        self.key = ("excluded", self._base_start, self._name)

    def install(self, state_table: StateTable) -> int:
        bases = [self._base_start]
        for byte in self._name:
            bases.append(state_table.target(bases[-1], byte))
        state_table.target(bases[-1], QUOTE)
        self._bases = bases
        first = state_table.new_states(len(bases))
        state_table.rows[first : first + len(bases)] = state_table.rows[bases]
        state_table.states[first : first + len(bases)] = state_table.states[bases]
        for i, byte in enumerate(self._name):
            state_table.rows[first + i, byte] = first + i + 1
        state_table.rows[first + len(bases) - 1, QUOTE] = DEAD
        if not is_endless(state_table, self._base_start):
            self._narrow(state_table, first)
        for i in range(len(bases)):
            if state_table.rows[first + i].min() == LAZY:
                state_table.has_edges(first + i, self, i)
        return first

    def _narrow(self, state_table: StateTable, first: int) -> None:
        """Recomputes which labels can be reached, where strings end or are distinguished."""
        for i in reversed(range(len(self._bases))):
            if state_table.rows[first + i, BACKSLASH] == LAZY:
                # By escapes alone there may be no way on.
                escape = state_table.target(self._bases[i], BACKSLASH)
                state_table.rows[first + i, BACKSLASH] = escape
            row = state_table.rows[first + i]
            if i < len(self._name):
                byte = self._name[i]
                if state_table.states[row[byte], REACH] == state_table.bit_set(0):
                    row[byte] = DEAD
            bits = 0
            for target in np.unique(row[row >= 0]).tolist():
                bits |= state_table.bits_at(int(state_table.states[target, REACH]))
            if row.min() == LAZY:
                bits |= state_table.bits_at(int(state_table.states[self._bases[i], REACH]))
            state_table.states[first + i, REACH] = state_table.bit_set(bits)

    def edge(self, state_table: StateTable, local: int, byte: int, row: Row) -> None:
        row[byte] = state_table.target(self._bases[local], byte)

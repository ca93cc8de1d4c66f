"""A string lexeme without one more string: how an object's names are kept from coming twice."""

from __future__ import annotations

import numpy as np

from ramet.grammars.automaton import DEAD, LAZY, Row
from ramet.grammars.json_text import KEY_SLICE
from ramet.grammars.machine import Machine
from ramet.grammars.moves import REACH, ROOM

from .literal_text import EXCLUDED, LiteralText
from .text_lexemes import QUOTE, TextLexeme


def excluding(machine: Machine, names: TextLexeme, name: str) -> TextLexeme:
    """``names`` without ``name``."""
    if name and all("\x20" <= c <= "\x7e" and c not in '"\\/' for c in name):
        return _ExcludedText(machine, names, name)
    return LiteralText(names.closing, {name: EXCLUDED}, names, machine)


class _ExcludedText(TextLexeme):
    """A base without one string that has a single spelling.

    The states along that string are copies of the base's; the last one lacks its closing quote.
    """

    slice = KEY_SLICE

    def __init__(self, machine: Machine, base: TextLexeme, name: str) -> None:
        self.closing = base.closing
        self._base_start = machine.install(base)
        self._name = name.encode()
        self._bases: list[int] = []
        # Named by the base's first state: its own key would grow with each name.
        self.key = ("excluded", self._base_start, self._name)

    def install(self, machine: Machine) -> int:
        bases = [self._base_start]
        for byte in self._name:
            bases.append(machine.target(bases[-1], byte))
        machine.target(bases[-1], QUOTE)
        self._bases = bases
        first = machine.new_states(len(bases))
        machine.rows[first : first + len(bases)] = machine.rows[bases]
        machine.states[first : first + len(bases)] = machine.states[bases]
        for i, byte in enumerate(self._name):
            machine.rows[first + i, byte] = first + i + 1
        machine.rows[first + len(bases) - 1, QUOTE] = DEAD
        if machine.states[first, ROOM] < 0:
            self._narrow(machine, first)
        for i in range(len(bases)):
            if machine.rows[first + i].min() == LAZY:
                machine.has_edges(first + i, self, i)
        return first

    def _narrow(self, machine: Machine, first: int) -> None:
        """Work out anew what can be reached, where the base has an end to its strings."""
        for i in reversed(range(len(self._bases))):
            row = machine.rows[first + i]
            if i < len(self._name):
                byte = self._name[i]
                if machine.states[row[byte], REACH] == machine.bit_set(0):
                    row[byte] = DEAD
            bits = 0
            for target in np.unique(row[row >= 0]).tolist():
                bits |= machine.bits_at(int(machine.states[target, REACH]))
            if row.min() == LAZY:
                bits |= machine.bits_at(int(machine.states[self._bases[i], REACH]))
            machine.states[first + i, REACH] = machine.bit_set(bits)

    def edge(self, machine: Machine, local: int, byte: int, row: Row) -> None:
        row[byte] = machine.target(self._bases[local], byte)

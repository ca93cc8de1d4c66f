"""A string lexeme without one more string: how an object's names are kept from coming twice."""

from __future__ import annotations

import numpy as np

from ramet.grammars.pushdown.json_text import KEY_SLICE
from ramet.grammars.pushdown.rows import DEAD, LAZY, Row
from ramet.grammars.pushdown.state_table import Lexicon
from ramet.grammars.pushdown.transitions import REACH

from .literal_text import EXCLUDED, LiteralText
from .text_lexemes import BACKSLASH, QUOTE, TextLexeme, is_endless


def excluding(lexicon: Lexicon, names: TextLexeme, name: str) -> TextLexeme:
    """``names`` without ``name``."""
    if name and all("\x20" <= c <= "\x7e" and c not in '"\\/' for c in name):
        return _ExcludedText(lexicon, names, name)
    return LiteralText(names.closing, {name: EXCLUDED}, names, lexicon)


class _ExcludedText(TextLexeme):
    """A base without one string that has a single spelling.

    The states along that string are copies of the base's; the last one lacks its closing quote.
    """

    slice = KEY_SLICE

    def __init__(self, lexicon: Lexicon, base: TextLexeme, name: str) -> None:
        self.closing = base.closing
        self._base_start = lexicon.install(base)
        self._name = name.encode()
        self._bases: list[int] = []
        # Named by the base's first state: its own key would grow with each name.
        self.key = ("excluded", self._base_start, self._name)

    def install(self, lexicon: Lexicon) -> int:
        bases = [self._base_start]
        for byte in self._name:
            bases.append(lexicon.target(bases[-1], byte))
        lexicon.target(bases[-1], QUOTE)
        self._bases = bases
        first = lexicon.new_states(len(bases))
        lexicon.rows[first : first + len(bases)] = lexicon.rows[bases]
        lexicon.states[first : first + len(bases)] = lexicon.states[bases]
        for i, byte in enumerate(self._name):
            lexicon.rows[first + i, byte] = first + i + 1
        lexicon.rows[first + len(bases) - 1, QUOTE] = DEAD
        if not is_endless(lexicon, self._base_start):
            self._narrow(lexicon, first)
        for i in range(len(bases)):
            if lexicon.rows[first + i].min() == LAZY:
                lexicon.has_edges(first + i, self, i)
        return first

    def _narrow(self, lexicon: Lexicon, first: int) -> None:
        """Work out anew what can be reached, where strings end or are told apart."""
        for i in reversed(range(len(self._bases))):
            if lexicon.rows[first + i, BACKSLASH] == LAZY:
                # By escapes alone there may be no way on.
                escape = lexicon.target(self._bases[i], BACKSLASH)
                lexicon.rows[first + i, BACKSLASH] = escape
            row = lexicon.rows[first + i]
            if i < len(self._name):
                byte = self._name[i]
                if lexicon.states[row[byte], REACH] == lexicon.bit_set(0):
                    row[byte] = DEAD
            bits = 0
            for target in np.unique(row[row >= 0]).tolist():
                bits |= lexicon.bits_at(int(lexicon.states[target, REACH]))
            if row.min() == LAZY:
                bits |= lexicon.bits_at(int(lexicon.states[self._bases[i], REACH]))
            lexicon.states[first + i, REACH] = lexicon.bit_set(bits)

    def edge(self, lexicon: Lexicon, local: int, byte: int, row: Row) -> None:
        row[byte] = lexicon.target(self._bases[local], byte)

"""The lexemes of JSON: a value, a property's name with its colon, what comes after either."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

import numpy as np

from ramet.grammars.pushdown.lexemes import Branch, LiteralLexeme, install_head
from ramet.grammars.pushdown.rows import DEAD, LAZY, Row, ended
from ramet.grammars.pushdown.state_table import Lexeme, StateTable

from .text_lexemes import QUOTE, TextLexeme

OBJECT, ARRAY, CLOSE_ARRAY, FIRST_SCALAR = range(4)
"""Labels of a value's lexeme: its first byte opens an object or an array, or closes the array
around; a scalar has ended with the first or a further verdict."""

COMMA, CLOSE = range(2)
"""Labels of what comes after a property or an item."""

_NUMBER_BYTES = b"-0123456789"
_LITERALS = {"null": b"null", "true": b"true", "false": b"false"}


class ValueLexeme(Lexeme):
    """A scalar, or the first byte of an object or array.

    Args:
        text: the strings' lexeme, from after the quote; None: no string is allowed.
        number: the numbers' lexeme.
        literals: labels of null, true and false.
        brackets: which of ``OBJECT``, ``ARRAY`` and ``CLOSE_ARRAY`` are allowed.
        prefixes: white space before the value.
        close_prefixes: white space before the closing bracket.
    """

    def __init__(
        self,
        text: TextLexeme | None,
        number: Lexeme | None,
        literals: Mapping[str, int],
        brackets: frozenset[int],
        prefixes: tuple[bytes, ...],
        close_prefixes: tuple[bytes, ...],
    ) -> None:
        self.text = text
        self.number = number
        self.literals = literals
        self.brackets = brackets
        self.prefixes = prefixes
        self.close_prefixes = close_prefixes
        self.key = (
            "value", text and text.key, number and number.key, tuple(sorted(literals.items())),
            brackets, prefixes, close_prefixes,
        )  # fmt: skip

    def install(self, state_table: StateTable) -> int:
        targets: dict[int, int] = {}
        if self.number is not None:
            start = state_table.install(self.number)
            for byte in b"-0123456789":
                target = state_table.target(start, byte)
                if target >= 0:
                    targets[byte] = target
        if self.text is not None:
            targets[QUOTE] = state_table.install(self.text)
        for name, label in self.literals.items():
            text = _LITERALS[name]
            targets[text[0]] = state_table.install(LiteralLexeme(text[1:], label))
        if OBJECT in self.brackets:
            targets[0x7B] = ended(OBJECT)
        if ARRAY in self.brackets:
            targets[0x5B] = ended(ARRAY)
        branches: list[Branch] = []
        if targets:
            branches.append((self.prefixes, targets, None))
        if CLOSE_ARRAY in self.brackets:
            branches.append((self.close_prefixes, {0x5D: ended(CLOSE_ARRAY)}, None))
        return install_head(state_table, branches)


class ItemLexeme(Lexeme):
    """A value like ``ValueLexeme``'s whose strings and numbers are computed if one begins.

    ``number`` and ``text`` give their lexemes; ``id`` distinguishes lexemes of one state table.
    """

    has_edges = True

    def __init__(
        self,
        id_: Hashable,
        text: Callable[[StateTable], Lexeme] | None,
        number: Callable[[StateTable], Lexeme] | None,
        literals: Mapping[str, int],
        brackets: frozenset[int],
        prefixes: tuple[bytes, ...],
        close_prefixes: tuple[bytes, ...],
    ) -> None:
        self._text = text
        self._number = number
        self._literals = literals
        self._brackets = brackets
        self._prefixes = prefixes
        self._close_prefixes = close_prefixes
        self.key = ("item", id_, brackets, prefixes, close_prefixes)

    def install(self, state_table: StateTable) -> int:
        targets: dict[int, int] = {}
        if self._number is not None:
            targets.update(dict.fromkeys(_NUMBER_BYTES, LAZY))
        if self._text is not None:
            targets[QUOTE] = LAZY
        for name, label in self._literals.items():
            text = _LITERALS[name]
            targets[text[0]] = state_table.install(LiteralLexeme(text[1:], label))
        if OBJECT in self._brackets:
            targets[0x7B] = ended(OBJECT)
        if ARRAY in self._brackets:
            targets[0x5B] = ended(ARRAY)
        branches: list[Branch] = [(self._prefixes, targets, None)]
        if CLOSE_ARRAY in self._brackets:
            branches.append((self._close_prefixes, {0x5D: ended(CLOSE_ARRAY)}, None))
        first = install_head(state_table, branches)
        for state in range(first, state_table.num_states):
            state_table.has_edges(state, self, 0)
        return first

    def edge(self, state_table: StateTable, local: int, byte: int, row: Row) -> None:
        if byte == QUOTE:
            assert self._text is not None
            start = state_table.install(self._text(state_table))
            row[QUOTE] = start if has_text(state_table, start) else DEAD
            return
        assert self._number is not None
        start = state_table.install(self._number(state_table))
        for digit in _NUMBER_BYTES:
            row[digit] = state_table.target(start, digit)


def has_text(state_table: StateTable, state: int) -> bool:
    """Whether any byte may come in a state."""
    state_table.make_ready(state)
    row = state_table.rows[state]
    if (row[row != LAZY] != DEAD).any():
        return True
    return any(state_table.target(state, b) != DEAD for b in np.flatnonzero(row == LAZY).tolist())


class AfterLexeme(Lexeme):
    """A comma, or the bracket that closes the object or array."""

    def __init__(
        self, bracket: int, comma_prefixes: tuple[bytes, ...], close_prefixes: tuple[bytes, ...]
    ) -> None:
        self.bracket = bracket
        self.comma_prefixes = comma_prefixes
        self.close_prefixes = close_prefixes
        self.key = ("after", bracket, comma_prefixes, close_prefixes)

    def install(self, state_table: StateTable) -> int:
        return install_head(
            state_table,
            [
                (self.comma_prefixes, {0x2C: ended(COMMA)}, 1 << COMMA),
                (self.close_prefixes, {self.bracket: ended(CLOSE)}, 1 << CLOSE),
            ],
        )

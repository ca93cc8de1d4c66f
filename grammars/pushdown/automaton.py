"""Constraints that are a single lexeme: one lazy automaton, and the end of the text after it.

Such a constraint needs no parser stack. It implements ``Automaton``; ``AutomatonLexeme`` wraps it.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

import numpy as np

from .context_table import After, Context, ContextTable
from .rows import DEAD, Row
from .state_table import Lexeme, LexemeEnd, StateTable


class Automaton(Protocol):
    """A deterministic byte automaton, built as it is read.

    Every state that a row leads to must be completable: from it some text is accepted. ``key``
    identifies the language: equal keys share states and masks.
    """

    @property
    def key(self) -> Hashable: ...

    @property
    def start(self) -> int: ...

    def row(self, state: int) -> Row:
        """The next state for each byte, or ``DEAD``. Called once a state."""
        ...

    def is_accepting(self, state: int) -> bool: ...

    def shortest_completion(self, state: int) -> bytes:
        """A shortest text that is accepted from a state."""
        ...


class End(Context):
    """The whole text has been read."""

    __slots__ = ()
    is_end = True

    @property
    def key(self) -> Hashable:
        return "end"

    def lexeme(self, pushdown: ContextTable) -> Lexeme | None:
        return NOTHING

    def after(self, pushdown: ContextTable, label: int, text: bytes | None) -> After:
        return None


class NothingLexeme(Lexeme):
    """The context after the end: no text may follow."""

    key = "nothing"

    def install(self, state_table: StateTable) -> int:
        return state_table.reserve(self, 0)

    def fill(self, state_table: StateTable, local: int, row: Row) -> int:
        row[:] = DEAD
        return -1


NOTHING = NothingLexeme()


class AutomatonLexeme(Lexeme):
    """An ``Automaton`` as a lexeme that ends, with label 0, wherever the automaton accepts."""

    def __init__(self, automaton: Automaton) -> None:
        self.automaton = automaton
        self.key = ("automaton", automaton.key)

    def install(self, state_table: StateTable) -> int:
        return int(state_table.reserve_all(self, np.array([self.automaton.start], np.int32))[0])

    def fill(self, state_table: StateTable, local: int, row: Row) -> int:
        targets = self.automaton.row(local)
        row[:] = DEAD
        goes_on = targets >= 0
        row[goes_on] = state_table.reserve_all(self, targets[goes_on])
        return 0 if self.automaton.is_accepting(local) else -1

    def shortest_end(self, state_table: StateTable, state: int) -> LexemeEnd:
        locals_ = state_table.tables["reserved", self.key]
        local = int(np.flatnonzero(locals_ == state)[0])
        return LexemeEnd(self.automaton.shortest_completion(local), 0, is_open=True)


class Whole(Context):
    """One lexeme, then the end."""

    __slots__ = ("_lexeme",)

    def __init__(self, lexeme: Lexeme) -> None:
        self._lexeme = lexeme

    @property
    def key(self) -> Hashable:
        return ("whole", self._lexeme.key)

    def lexeme(self, pushdown: ContextTable) -> Lexeme | None:
        return self._lexeme

    def shortest_end(self, pushdown: ContextTable, state: int) -> LexemeEnd | None:
        return self._lexeme.shortest_end(pushdown.state_table, state)

    def after(self, pushdown: ContextTable, label: int, text: bytes | None) -> After:
        return pushdown.intern(End())

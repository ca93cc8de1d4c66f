"""A grammar's lexeme in which long counted repetitions have few different masks."""

from __future__ import annotations

import numpy as np

from ramet.grammars.pushdown.automaton import AutomatonLexeme
from ramet.grammars.pushdown.rows import DEAD, LAZY, Row
from ramet.grammars.pushdown.state_table import Lexeme, StateTable

from .automaton import GrammarAutomaton


class GrammarLexeme(AutomatonLexeme):
    """A ``GrammarAutomaton`` that ends, with label 0, wherever it accepts.

    Where it has long counted repetitions, a text's states have the masks of states of
    ``_MaskLexeme``, and of their rows only the bytes that a text has are computed.
    """

    has_edges = True

    def __init__(self, automaton: GrammarAutomaton) -> None:
        super().__init__(automaton)
        self._grammar = automaton
        self._masks = _MaskLexeme(automaton)

    def fill(self, state_table: StateTable, local: int, row: Row) -> int:
        grammar = self._grammar
        if not grammar.has_equal_states(state_table.longest_token):
            return super().fill(state_table, local, row)
        own = _reserved(state_table, self, local)
        state_table.masked_as[own] = _reserved(
            state_table, self._masks, int(grammar.equal_states(np.array([local], np.int32))[0])
        )
        row[:] = LAZY
        return 0 if grammar.is_accepting(local) else -1

    def edge(self, state_table: StateTable, local: int, byte: int, row: Row) -> None:
        target = int(self._grammar.row(local)[byte])
        row[byte] = DEAD if target < 0 else _reserved(state_table, self, target)


class _MaskLexeme(Lexeme):
    """A grammar's automaton reduced to one representative of all states with the same tokens.

    Transitions lead to representatives, so it gives masks, but can't follow a text.
    """

    def __init__(self, automaton: GrammarAutomaton) -> None:
        self._grammar = automaton
        self.key = ("masks", automaton.key)

    def install(self, state_table: StateTable) -> int:
        raise AssertionError("no text is in one of these states")

    def fill(self, state_table: StateTable, local: int, row: Row) -> int:
        grammar = self._grammar
        targets = grammar.row(local)
        row[:] = DEAD
        goes_on = targets >= 0
        row[goes_on] = state_table.reserve_all(self, grammar.equal_states(targets[goes_on]))
        return 0 if grammar.is_accepting(local) else -1


def _reserved(state_table: StateTable, lexeme: Lexeme, local: int) -> int:
    return int(state_table.reserve_all(lexeme, np.array([local], np.int32))[0])

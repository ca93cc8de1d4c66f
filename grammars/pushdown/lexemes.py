"""Lexemes made of complete automata, and the parts of which JSON's lexemes are composed."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from ramet.grammars.regular import Dfa

from .labelled_dfa import LabelledDfa
from .rows import DEAD, Row, ended
from .state_table import Lexeme, StateTable
from .tables import END_LABEL, REACH, READY

_SMALL = 48
"""The number of an automaton's states, nearest to the start, that are installed first; the others
are installed as they are read."""


class DfaLexeme(Lexeme):
    """A ``Dfa`` that ends, with one label, wherever it accepts and the text goes on otherwise."""

    def __init__(self, dfa: Dfa, label: int = 0) -> None:
        self.dfa = dfa
        self.label = label
        self.key = ("dfa", dfa.digest, label)

    def install(self, state_table: StateTable) -> int:
        dfa = self.dfa
        size = dfa.num_states
        is_large = size > _SMALL
        first = state_table.reserve_block(self, size) if is_large else state_table.new_states(size)
        transitions = dfa.table[:_SMALL]
        end = first + len(transitions)
        np.take(
            np.where(transitions >= 0, transitions + first, DEAD),
            dfa.class_of,
            1,
            state_table.rows[first:end],
        )
        state_table.states[first:end, END_LABEL] = np.where(dfa.accepting[:_SMALL], self.label, -1)
        state_table.states[first:end, READY] = 1
        return first

    def fill(self, state_table: StateTable, local: int, row: Row) -> int:
        transitions = self.dfa.table[local]
        np.take(
            np.where(transitions >= 0, transitions + state_table.install(self), DEAD),
            self.dfa.class_of,
            out=row,
        )
        return self.label if self.dfa.accepting[local] else -1


class LabelledDfaLexeme(Lexeme):
    """A labelled automaton that ends wherever it accepts and the text goes on otherwise."""

    def __init__(self, automaton: LabelledDfa, key: Hashable) -> None:
        self.automaton = automaton
        self.key = ("labelled", key)

    def install(self, state_table: StateTable) -> int:
        transitions = self.automaton.transitions
        first = state_table.new_states(len(transitions))
        state_table.rows[first : state_table.num_states] = np.where(
            transitions >= 0, transitions + first, DEAD
        )
        state_table.states[first : state_table.num_states, 1] = self.automaton.labels
        state_table.states[first : state_table.num_states, REACH] = state_table.new_bit_sets(
            self.automaton.reachable()
        )
        return first


class LiteralLexeme(Lexeme):
    """The rest of a fixed text, whose last byte ends the lexeme."""

    def __init__(self, text: bytes, label: int) -> None:
        self.text = text
        self.label = label
        self.key = ("literal", text, label)

    def install(self, state_table: StateTable) -> int:
        text = self.text
        first = state_table.new_states(len(text))
        state_table.rows[first : first + len(text)] = DEAD
        for i, byte in enumerate(text):
            last = i + 1 == len(text)
            state_table.rows[first + i, byte] = ended(self.label) if last else first + i + 1
        return first


Branch = tuple[Sequence[bytes], dict[int, int], int | None]
"""What may begin a lexeme: any of some texts (white space), then a byte that leads to a row's
entry; the labels that are reachable that way, None for all."""


def install_head(state_table: StateTable, branches: Sequence[Branch]) -> int:
    """A start state that distinguishes ``branches`` by their first bytes.

    A white-space text must not be continued by a byte of another branch with the same text.
    """
    nodes: dict[bytes, dict[int, int]] = {b"": {}}
    reach: dict[bytes, int | None] = {b"": 0}
    for prefixes, targets, bits in branches:
        for prefix in prefixes:
            for end in range(len(prefix) + 1):
                nodes.setdefault(prefix[:end], {})
                known = reach.setdefault(prefix[:end], 0)
                reach[prefix[:end]] = None if known is None or bits is None else known | bits
            nodes[prefix].update(targets)
    first = state_table.new_states(len(nodes))
    numbers = {prefix: first + i for i, prefix in enumerate(nodes)}
    for prefix, targets in nodes.items():
        row = state_table.rows[numbers[prefix]]
        row[:] = DEAD
        for byte, target in targets.items():
            row[byte] = target
        labels = reach[prefix]
        if labels is not None:
            state_table.states[numbers[prefix], REACH] = state_table.bit_set(labels)
    for prefix, number in numbers.items():
        if prefix:
            state_table.rows[numbers[prefix[:-1]], prefix[-1]] = number
    return first

"""Strings of a regular language with bounds on the length, without building the product."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

from ramet.grammars.json_schema.solver.value_sets.character_dfa import CharacterDfa
from ramet.grammars.pushdown.json_text import KEY_SLICE
from ramet.grammars.pushdown.rows import DEAD, Row
from ramet.grammars.pushdown.state_table import StateTable
from ramet.grammars.pushdown.tables import REACH

from .open_states import open_states
from .text_lexemes import MOST_PREPARED, QUOTE, Closing, TextLexeme, mark_open, write_row


class _UncountedText(TextLexeme):
    """The members of a body, whatever their length. State i is the automaton's state i."""

    slice = KEY_SLICE

    def __init__(
        self, closing: Closing, label: int, automaton: CharacterDfa, key: Hashable
    ) -> None:
        self.closing = closing
        self.label = label
        self.automaton = automaton
        self.key = ("uncounted text", closing.key, label, key)

    def install(self, state_table: StateTable) -> int:
        automaton = self.automaton
        size = len(automaton.table)
        first = state_table.reserve_block(self, size)
        if self.closing.filtered:
            state_table.states[first : first + size, REACH] = state_table.bit_set(1 << self.label)
        mark_open(state_table, first, open_states(automaton.table, automaton.class_of))
        state_table.fresh.extend(range(first, first + min(size, MOST_PREPARED)))
        return first

    def fill(self, state_table: StateTable, local: int, row: Row) -> int:
        automaton = self.automaton
        write_row(state_table.install(self), automaton.table[local], automaton.class_of, row)
        if automaton.accepting[local]:
            row[QUOTE] = self.closing.target(state_table, self.label)
        return -1


class CountedText(TextLexeme):
    """The members of a body with ``low`` to ``high`` characters.

    State (count, state) is count * states + state; past ``low`` the count matters to ``high``
    alone, and without ``high`` not at all.
    """

    slice = KEY_SLICE

    def __init__(
        self,
        closing: Closing,
        label: int,
        automaton: CharacterDfa,
        key: Hashable,
        low: int,
        high: int | None,
    ) -> None:
        self.closing = closing
        self.label = label
        self.automaton = automaton
        self.low = low
        self.high = high
        self.key = ("counted text", closing.key, label, key, low, high)
        self._alive: dict[int, NDArray[np.bool_]] = {}
        self._uncounted = _UncountedText(closing, label, automaton, key)
        # From every state some text of that many characters ends.
        self._longest_end = int(automaton.shortest.max())

    def install(self, state_table: StateTable) -> int:
        return self._state(state_table, 0, 0)

    def alive(self, count: int) -> NDArray[np.bool_]:
        """The states that can still be completed after ``count`` whole characters."""
        known = self._alive.get(count)
        if known is None:
            high = None if self.high is None else self.high - count
            known = self._alive[count] = self.automaton.within(self.low - count, high)
        return known

    def _state(self, state_table: StateTable, count: int, state: int) -> int:
        number = state_table.reserve(self, count * len(self.automaton.table) + state)
        if count >= self.low and number not in state_table.masked_as:
            needed = state_table.longest_token + self._longest_end
            if self.high is None or self.high - count >= needed:
                # No token gets near the bounds.
                state_table.masked_as[number] = state_table.install(self._uncounted) + state
        if self.closing.filtered:
            state_table.states[number, REACH] = state_table.bit_set(1 << self.label)
        return number

    def fill(self, state_table: StateTable, local: int, row: Row) -> int:
        automaton = self.automaton
        count, state = divmod(local, len(automaton.table))
        after = count + 1 if self.high is not None or count < self.low else count
        ends_here = self.high is not None and after > self.high
        numbers = {DEAD: DEAD}
        targets = []
        for target in automaton.table[state].tolist():
            number = numbers.get(target)
            if number is None:
                at_border = automaton.at_border[target]
                there = after if at_border else count
                fits = not (at_border and ends_here) and self.alive(there)[target]
                number = self._state(state_table, there, target) if fits else DEAD
                numbers[target] = number
            targets.append(number)
        np.take(np.array(targets, np.int32), automaton.class_of, out=row)
        if automaton.accepting[state] and count >= self.low:
            row[QUOTE] = self.closing.target(state_table, self.label)
        return -1

"""Strings of a regular language and a bounded length, with no automaton of their product."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

from ramet.grammars.automaton import DEAD, Row
from ramet.grammars.json_text import KEY_SLICE, key_text
from ramet.grammars.machine import REACH, Machine
from ramet.grammars.regular import Dfa

from .text_lexemes import QUOTE, Closing, TextLexeme


class CharacterDfa:
    """A string body's automaton (see ``key_body``) that knows where characters end.

    A state is a state of the body with one of ``KEY_TEXT``. All lengths are in characters.

    Attributes:
        class_of, table: as in a ``Dfa``; state 0 is the start.
        at_border: bool[num_states]: a character ends here.
        accepting: bool[num_states].
    """

    def __init__(self, body: Dfa) -> None:
        text = key_text()
        joint = body.class_of.astype(np.int64) * 256 + text.class_of
        pairs, class_of = np.unique(joint, return_inverse=True)
        self.class_of = class_of.astype(np.uint8)
        body_moves = body.table[:, pairs // 256].tolist()
        text_moves = text.table[:, pairs % 256].tolist()
        numbers = {(0, 0): 0}
        order = [(0, 0)]
        rows: list[list[int]] = []
        for state, mode in order:
            row = []
            for pair in zip(body_moves[state], text_moves[mode], strict=True):
                if pair[0] < 0 or pair[1] < 0:
                    row.append(-1)
                    continue
                if pair not in numbers:
                    numbers[pair] = len(order)
                    order.append(pair)
                row.append(numbers[pair])
            rows.append(row)
        self.table = np.array(rows, np.int32).reshape(len(order), -1)
        self.at_border = np.array([mode == 0 for _, mode in order])
        self.accepting = np.array([bool(body.accepting[s]) and mode == 0 for s, mode in order])
        self.shortest = self._shortest()

    def _before(self, alive: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """The states from which one character, or what is left of one, leads to ``alive``."""
        borders = alive & self.at_border
        moves = self.table >= 0
        found = np.zeros(len(self.table), np.bool_)
        # A state inside a character completes it; a border begins one and completes it.
        completes = (moves & borders[self.table]).any(axis=1)
        found |= completes
        while True:
            inside = found & ~self.at_border
            more = (moves & inside[self.table]).any(axis=1)
            if not (more & ~found).any():
                return found
            found |= more

    def _shortest(self) -> NDArray[np.int64]:
        """By state, the fewest characters to acceptance, one that is begun included."""
        far = np.iinfo(np.int64).max
        shortest = np.full(len(self.table), far)
        alive = self.accepting & self.at_border
        shortest[alive] = 0
        length = 0
        while alive.any():
            length += 1
            found = self._before(alive) & (shortest == far)
            shortest[found] = length
            alive = found
        return shortest

    def longest(self) -> int | None:
        """The most characters of a member; None if there is no bound."""
        alive = np.zeros(len(self.table), np.bool_)
        alive[0] = True
        length = 0
        while length <= int(self.at_border.sum()):
            if not alive.any():
                return length - 1
            inside = alive
            after = np.zeros_like(alive)
            while inside.any():
                targets = self.table[inside]
                reached = np.zeros_like(alive)
                reached[targets[targets >= 0]] = True
                after |= reached & self.at_border
                inside = reached & ~self.at_border
            alive = after
            length += 1
        return None

    def within(self, low: int, high: int | None) -> NDArray[np.bool_]:
        """The states from which ``low`` to ``high`` more characters can lead to acceptance."""
        if low <= 0:
            return self.shortest <= (np.iinfo(np.int64).max - 1 if high is None else high)
        # Without an upper bound, a length of at least ``low`` can be had by going round a loop.
        last = low + len(self.table) if high is None else high
        found = np.zeros(len(self.table), np.bool_)
        alive = self.accepting & self.at_border
        for length in range(1, last + 1):
            alive = self._before(alive)
            if length >= low:
                found |= alive
            if not alive.any():
                break
        return found


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

    def install(self, machine: Machine) -> int:
        automaton = self.automaton
        moves = automaton.table[:, automaton.class_of]
        first = machine.new_states(len(moves))
        machine.rows[first : first + len(moves)] = np.where(moves < 0, DEAD, moves + first)
        if self.closing.filtered:
            machine.states[first : first + len(moves), REACH] = machine.bit_set(1 << self.label)
        target = self.closing.target(machine, self.label)
        machine.rows[first : first + len(moves)][automaton.accepting, QUOTE] = target
        return first


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
        # From every state some text of so many characters ends.
        self._longest_end = int(automaton.shortest.max())

    def install(self, machine: Machine) -> int:
        return self._state(machine, 0, 0)

    def alive(self, count: int) -> NDArray[np.bool_]:
        """The states that can still be completed after ``count`` whole characters."""
        known = self._alive.get(count)
        if known is None:
            high = None if self.high is None else self.high - count
            known = self._alive[count] = self.automaton.within(self.low - count, high)
        return known

    def _state(self, machine: Machine, count: int, state: int) -> int:
        number = machine.reserve(self, count * len(self.automaton.table) + state)
        if count >= self.low and number not in machine.masked_as:
            needed = machine.longest_token + self._longest_end
            if self.high is None or self.high - count >= needed:
                # No token gets near the bounds.
                machine.masked_as[number] = machine.install(self._uncounted) + state
        if self.closing.filtered:
            machine.states[number, REACH] = machine.bit_set(1 << self.label)
        return number

    def fill(self, machine: Machine, local: int, row: Row) -> int:
        automaton = self.automaton
        count, state = divmod(local, len(automaton.table))
        after = count + 1 if self.high is not None or count < self.low else count
        moves = automaton.table[state]
        there = np.where(automaton.at_border[moves], after, count)
        targets = np.full(len(moves), DEAD, np.int32)
        for next_count in (count,) if after == count else (count, after):
            if self.high is not None and next_count > self.high:
                continue
            fits = (moves >= 0) & (there == next_count) & self.alive(next_count)[moves]
            for target in set(moves[fits].tolist()):
                targets[fits & (moves == target)] = self._state(machine, next_count, target)
        np.take(targets, automaton.class_of, out=row)
        if automaton.accepting[state] and count >= self.low:
            row[QUOTE] = self.closing.target(machine, self.label)
        return -1

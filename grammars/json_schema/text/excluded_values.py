"""A scalar lexeme minus one value: excludes an array's item from occurring twice.

The automaton of the value's spellings is laid over a *base*, the lexeme of the other values. A
state is a pair of a base state and a state of the spellings after the same text, created when it is
first read; where no spelling continues, the base's own state follows. So an excluded value costs
only the states that texts visit, and shares all others with the base.
"""

from __future__ import annotations

from collections.abc import Hashable
from decimal import Decimal
from typing import Protocol

import numpy as np

from ramet.grammars.limits import DEFAULT_LIMITS
from ramet.grammars.pushdown.json_text import key_body
from ramet.grammars.pushdown.rows import DEAD, Row
from ramet.grammars.pushdown.state_table import Lexeme, StateTable
from ramet.grammars.pushdown.tables import END_LABEL, READY, ROOM, SLICE
from ramet.grammars.regular import Dfa, literals
from ramet.grammars.regular.numbers import equal_to_any

from .text_lexemes import QUOTE, AnyText, BoundedText


class Spellings(Protocol):
    """A deterministic automaton of one value's texts; state 0 is the start."""

    num_states: int

    def transitions(self, state: int) -> dict[int, int]:
        """The next state by byte."""
        ...

    def is_accepting(self, state: int) -> bool: ...


class OneSpelling:
    """A single text."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self.num_states = len(text) + 1

    def transitions(self, state: int) -> dict[int, int]:
        return {self._text[state]: state + 1} if state < len(self._text) else {}

    def is_accepting(self, state: int) -> bool:
        return state == len(self._text)


class DfaSpellings:
    """The texts of an automaton."""

    def __init__(self, dfa: Dfa) -> None:
        self._dfa = dfa
        self.num_states = dfa.num_states

    def transitions(self, state: int) -> dict[int, int]:
        targets = self._dfa.table[state][self._dfa.class_of]
        return {int(b): int(targets[b]) for b in np.flatnonzero(targets >= 0)}

    def is_accepting(self, state: int) -> bool:
        return bool(self._dfa.accepting[state])


class ExcludedValue(Lexeme):
    """A base without the texts of one value.

    Args:
        base: the base's start state in the only state table that this is for.
        keeps_room: in no state of the base are there only texts that are left out, so that inside
            strings as many characters may follow as before.
    """

    has_edges = True

    def __init__(
        self, base: int, spellings: Spellings, value: Hashable, *, keeps_room: bool = False
    ) -> None:
        self._base = base
        self._spellings = spellings
        self._keeps_room = keeps_room
        self._alive: dict[tuple[int, int], bool] = {}
        self.key = ("excluded value", base, value)

    def install(self, state_table: StateTable) -> int:
        return self._state(state_table, self._base, 0)

    def _state(self, state_table: StateTable, base: int, spelled: int) -> int:
        return state_table.reserve(self, base * self._spellings.num_states + spelled)

    def base_of(self, local: int) -> int:
        """The base's state of one of its own."""
        return local // self._spellings.num_states

    def fill(self, state_table: StateTable, local: int, row: Row) -> int:
        base, spelled = divmod(local, self._spellings.num_states)
        _make_ready(state_table, base)
        transitions = self._spellings.transitions(spelled)
        targets = {byte: state_table.target(base, byte) for byte in transitions}
        ends_here = self._spellings.is_accepting(spelled)
        filled = state_table.rows[base].copy()
        for byte, after in transitions.items():
            target = targets[byte]
            if target >= 0:
                is_alive = self._is_alive(state_table, target, after)
                filled[byte] = self._state(state_table, target, after) if is_alive else DEAD
        if ends_here:
            filled[QUOTE] = DEAD
        row[:] = filled
        if self._keeps_room:
            state = self._state(state_table, base, spelled)
            state_table.states[state, [ROOM, SLICE]] = state_table.states[base, [ROOM, SLICE]]
        return -1 if ends_here else int(state_table.states[base, END_LABEL])

    def edge(self, state_table: StateTable, local: int, byte: int, row: Row) -> None:
        row[byte] = state_table.target(self.base_of(local), byte)

    def _is_alive(self, state_table: StateTable, base: int, spelled: int) -> bool:
        """Whether some text that is left goes on from here."""
        known = self._alive.get((base, spelled))
        if known is not None:
            return known
        seen = {(base, spelled)}
        pending = [(base, spelled)]
        found = False
        while pending and not found:
            here, state = pending.pop()
            _make_ready(state_table, here)
            transitions = self._spellings.transitions(state)
            ends_here = self._spellings.is_accepting(state)
            if state_table.states[here, END_LABEL] >= 0 and not ends_here:
                found = True
            for byte in np.flatnonzero(state_table.rows[here] != DEAD).tolist():
                if found:
                    break
                target = state_table.target(here, byte)
                if target == DEAD or (byte == QUOTE and ends_here):
                    continue
                after = transitions.get(byte)
                if after is None or target < 0:
                    found = True
                elif (target, after) not in seen:
                    seen.add((target, after))
                    pending.append((target, after))
        self._alive[base, spelled] = found
        return found


def _make_ready(state_table: StateTable, state: int) -> None:
    """``state_table.make_ready`` without nesting as deep as values were left out."""
    pending = []
    while not state_table.states[state, READY]:
        pending.append(state)
        origin = state_table.origin(state)
        if origin is None or not isinstance(origin[0], ExcludedValue):
            break
        state = origin[0].base_of(origin[1])
    for state in reversed(pending):
        state_table.make_ready(state)


def without_text(state_table: StateTable, base: Lexeme, first: Lexeme, text: str) -> Lexeme:
    """``base`` without one string. It has strings of ``first``, spelled as ``KEY_SLICE`` has it."""
    keeps_room = isinstance(first, AnyText) or (
        isinstance(first, BoundedText) and (first.high is None or len(text) < first.high)
    )
    if all("\x20" <= c <= "\x7e" and c not in '"\\/' for c in text):
        found: Spellings = OneSpelling(text.encode())
    else:
        found = DfaSpellings(key_body(literals([text]), DEFAULT_LIMITS))
    return ExcludedValue(state_table.install(base), found, ("string", text), keeps_room=keeps_room)


def without_number(state_table: StateTable, base: Lexeme, value: Decimal) -> Lexeme:
    """A lexeme of numbers (see ``numbers.spellings``) without the texts that are equal to one."""
    found = DfaSpellings(equal_to_any([value]))
    return ExcludedValue(state_table.install(base), found, ("number", value))

"""Lazy automata of number texts, for remainders by any divisor.

As elsewhere where an automaton would be too large, numbers are plain decimals (no exponent).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ramet.grammars.json_schema.solver.value_sets.number_search import NumberSearch
from ramet.grammars.pushdown.rows import DEAD, Row
from ramet.grammars.pushdown.state_table import Lexeme, StateTable
from ramet.grammars.pushdown.tables import REACH

_MINUS, _DOT, _ZERO = b"-.0"

_START, _SIGNED, _WHOLE, _POINT, _DECIMALS, _TAIL = range(6)

State = tuple[int, int, int, int]
"""Where in a number; its sign; its digits so far; how many of them are decimals, or, in the tail,
whether a digit but 0 came after the decimals that a formula names."""


class SearchedNumbers(Lexeme):
    """Numbers that one of some formulas allows, with that formula's label; they don't overlap.

    Args:
        parts: labels with the searches of their formulas.
        is_plain: only integers without a decimal point.
    """

    has_ends = True

    def __init__(self, parts: Sequence[tuple[int, NumberSearch]], *, is_plain: bool) -> None:
        self._parts = parts
        self._is_plain = is_plain
        self.key = ("searched", tuple((label, s.formula) for label, s in parts), is_plain)
        self._states: list[State] = []
        self._numbers: dict[State, int] = {}
        self._decimals = max(s.decimals for _, s in parts)
        self._alive: dict[State, int] = {}
        self._known_repeats: dict[tuple[int, int], tuple[int, int]] = {}

    def install(self, state_table: StateTable) -> int:
        return self._reserve(state_table, (_START, 1, 0, 0))

    def _reserve(self, state_table: StateTable, state: State) -> int:
        number = self._numbers.get(state)
        if number is None:
            number = self._numbers[state] = len(self._states)
            self._states.append(state)
        reserved = state_table.reserve(self, number)
        if len(self._parts) > 1:
            state_table.states[reserved, REACH] = state_table.bit_set(self._labels(state))
        return reserved

    def fill(self, state_table: StateTable, local: int, row: Row) -> int:
        state = self._states[local]
        row[:] = DEAD
        for byte, after in self._following(state):
            if self._labels(after):
                row[byte] = self._reserve(state_table, after)
        return self._accepts(state)

    def _following(self, state: State) -> Iterator[tuple[int, State]]:
        place, sign, digits, more = state
        if place == _START:
            yield _MINUS, (_SIGNED, -1, 0, 0)
        if place in (_START, _SIGNED):
            for digit in range(10):
                yield _ZERO + digit, self._whole(sign, digit)
            return
        if place == _WHOLE:
            if not self._is_plain:
                yield _DOT, (_POINT, sign, digits, 0)
            if digits == 0:
                return
        for digit in range(10):
            if place == _WHOLE:
                yield _ZERO + digit, self._whole(sign, 10 * digits + digit)
            elif place == _TAIL:
                yield _ZERO + digit, (_TAIL, sign, digits, int(more or digit > 0))
            elif more == self._decimals:
                yield _ZERO + digit, (_TAIL, sign, digits, int(digit > 0))
            else:
                yield _ZERO + digit, self._fraction(sign, 10 * digits + digit, more + 1)

    def _whole(self, sign: int, value: int) -> State:
        return _WHOLE, sign, self._reduced(sign, value, 0), 0

    def _fraction(self, sign: int, value: int, decimals: int) -> State:
        return _DECIMALS, sign, self._reduced(sign, value, decimals), decimals

    def _reduced(self, sign: int, value: int, decimals: int) -> int:
        """A number to which the same digits may be added, above all that the formulas name."""
        first, period = self._repeats(sign, decimals)
        return value if value < first else first + (value - first) % period

    def _repeats(self, sign: int, decimals: int) -> tuple[int, int]:
        """From which number on, with so many decimals, what may follow repeats, and how soon."""
        known = self._known_repeats.get((sign, decimals))
        if known is None:
            scale = 10 ** (self._decimals - decimals)
            last, period = 0, 1
            for _, search in self._parts:
                finer = 10 ** (self._decimals - search.decimals)
                last = max(last, search.last_point(sign) * finer)
                period = math.lcm(period, search.period * finer)
            first = last // scale + 1
            period //= math.gcd(period, scale)
            known = self._known_repeats[sign, decimals] = first, period
        return known

    def _accepts(self, state: State) -> int:
        place, sign, digits, more = state
        if place in (_START, _SIGNED, _POINT):
            return -1
        if place == _TAIL:
            digits, more = (
                (10 * digits + 5, self._decimals + 1) if more else (digits, self._decimals)
            )
        for label, search in self._parts:
            if search.allows(sign, digits, more):
                return label
        return -1

    def _in_tail(self, digits: int, more: int) -> tuple[int, int]:
        """A number that is like all with these first decimals: with digits but 0 after, or not."""
        return (10 * digits + 5, self._decimals + 1) if more else (digits, self._decimals)

    def _labels(self, state: State) -> int:
        """The labels of the numbers that a state's text can become, as bits."""
        known = self._alive.get(state)
        if known is None:
            known = self._alive[state] = sum(
                1 << label for label, search in self._parts if self._find(state, search) is not None
            )
        return known

    def _find(self, state: State, search: NumberSearch) -> str | None:
        """A short text that a formula allows after a state's."""
        place, sign, digits, more = state
        if place == _START:
            found = search.find(1, 0, None, 0)
            if found is not None:
                return self._spell(found, "")
            found = search.find(-1, 0, None, 0)
            return None if found is None else "-" + self._spell(found, "")
        if place == _SIGNED:
            found = search.find(-1, 0, None, 0)
            return None if found is None else self._spell(found, "")
        if place == _TAIL:
            if search.allows(sign, *self._in_tail(digits, more)):
                return ""
            return "5" if search.allows(sign, 10 * digits + 5, self._decimals + 1) else None
        if place != _WHOLE:
            found = search.find(sign, digits, digits + 1, more)
            return None if found is None else self._decimals_of(found, more, place)
        low, high = digits, digits + 1
        while True:
            found = search.find(sign, low, high, 0)
            if found is not None:
                return self._spell(found, str(digits))
            is_above = low * 10**search.decimals > search.last_point(sign)
            if digits == 0 or (is_above and not search.has_large(sign)):
                return None
            low, high = 10 * low, 10 * high

    @staticmethod
    def _spell(found: tuple[int, int], prefix: str) -> str:
        digits, decimals = found
        whole, rest = divmod(digits, 10**decimals)
        decimal = f".{rest:0{decimals}d}".rstrip("0") if rest else ""
        return (str(whole) + decimal)[len(prefix) :]

    @staticmethod
    def _decimals_of(found: tuple[int, int], read: int, place: int) -> str:
        """The decimals of what was found after those that were read; one at least."""
        number, decimals = found
        written = f"{number % 10**decimals:0{decimals}d}" if decimals else ""
        rest = written[read:].rstrip("0")
        return rest or ("0" if place == _POINT else "")

    def ends(self, local: int) -> list[tuple[bytes, int, bool]] | None:
        state = self._states[local]
        found = [(label, self._find(state, search)) for label, search in self._parts]
        return [(text.encode(), label, True) for label, text in found if text is not None]

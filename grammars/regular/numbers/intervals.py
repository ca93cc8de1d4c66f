"""The spellings of the numbers in some intervals, as one automaton built in one go.

``languages.py`` describes the universe of spellings. A text is compared with the bounds digit by
digit; while it agrees with a bound it is *tight* to it, and once it differs the bound no longer
matters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cache

import numpy as np
from numpy.typing import NDArray

from ramet.grammars.limits import RegularLimits, too_complex
from ramet.grammars.regular.automata.dfa import Dfa
from ramet.grammars.regular.automata.nfa import NfaBuilder

from .exponents import exponents_between

MAX_DECIMALS = 17
LARGEST = Decimal("1.7976931348623157e308")
SMALLEST = Decimal("5e-324")
_MAX_DIGITS = 4_000
_ZERO = Decimal(0)
_DOT, _NINE, _MINUS = b".9-"
_DIGIT = 0x30
_ANY, _ZEROS, _NONZERO, _NOTHING = range(4)
"""What decimals may follow: any, only zeros, some that are not all zeros, none at all."""


@dataclass(frozen=True, slots=True)
class Interval:
    """The numbers from ``low`` to ``high``; None is no bound. An open bound is left out."""

    low: Decimal | None = None
    high: Decimal | None = None
    low_open: bool = False
    high_open: bool = False


def intervals_dfa(intervals: Iterable[Interval], *, exponents: bool = True) -> Dfa:
    """The texts in the universe whose values are in any of some intervals.

    Raises:
        GrammarTooComplexError: a bound of too many digits.
    """
    builder = NfaBuilder()
    builder.start = builder.new_state()
    sides = _Side(builder, builder.start, exponents), _Side(builder, None, exponents)
    positive, negative = sides
    for interval in intervals:
        low, high = interval.low, interval.high
        for bound in (low, high):
            if bound is not None:
                check_digits(bound)
        has_zero = (low is None or low < 0 or (low == 0 and not interval.low_open)) and (
            high is None or high > 0 or (high == 0 and not interval.high_open)
        )
        if high is None or high > 0:
            above = low is not None and low > 0
            positive.add(
                low if above and low is not None else _ZERO,
                interval.low_open if above else not has_zero,
                high, interval.high_open,
            )  # fmt: skip
        elif has_zero:
            positive.add(_ZERO, False, _ZERO, False)
        if low is None or low < 0:
            below = high is not None and high < 0
            negative.add(
                high.copy_abs() if below and high is not None else _ZERO,
                interval.high_open if below else not has_zero,
                None if low is None else low.copy_abs(), interval.low_open,
            )  # fmt: skip
        elif has_zero:
            negative.add(_ZERO, False, _ZERO, False)
    end = builder.new_state()
    for side in sides:
        side.finish(end)
    return builder.build(end)


def check_digits(value: Decimal) -> None:
    """Refuse a number that is too long to be written out."""
    if abs(value.adjusted()) > _MAX_DIGITS or len(value.as_tuple().digits) > _MAX_DIGITS:
        raise too_complex("a bound of that many digits", RegularLimits())


class _Bounds:
    """Where digits stand against the bounds they may be tight to: the digits of each, in order."""

    def __init__(self, low: str, low_open: bool, high: str, high_open: bool) -> None:
        self.low = low.rstrip("0")
        self.high = high.rstrip("0")
        self.low_open = low_open
        self.high_open = high_open

    def allows_end(self, at: int, tight_low: bool, tight_high: bool) -> bool:
        """Whether a text may end after ``at`` digits, zeros meant after it."""
        if tight_low and (at < len(self.low) or self.low_open):
            return False
        return not (tight_high and at >= len(self.high) and self.high_open)

    def following(self, at: int, tight_low: bool, tight_high: bool) -> int | None:
        """What may follow ``at`` digits if the bounds have no more digits; else None."""
        low_said, high_said = at >= len(self.low), at >= len(self.high)
        tight_low = tight_low and not (low_said and not self.low_open)
        if tight_high and high_said:
            return _NOTHING if self.high_open or tight_low else _ZEROS
        if tight_high or (tight_low and not low_said):
            return None
        return _NONZERO if tight_low else _ANY

    def transitions(
        self, at: int, tight_low: bool, tight_high: bool, least: int = 0
    ) -> Iterator[tuple[int, int, bool, bool]]:
        """Ranges of next digits, each with what the text is tight to after them."""
        low = int(self.low[at]) if at < len(self.low) else 0
        high = int(self.high[at]) if at < len(self.high) else 0
        return tight_transitions(low, high, tight_low, tight_high, least)


def tight_transitions(
    low: int, high: int, tight_low: bool, tight_high: bool, least: int
) -> Iterator[tuple[int, int, bool, bool]]:
    """The digits from ``least`` that neither bound's digit rules out, by what is tight then."""
    first = max(low, least) if tight_low else least
    last = high if tight_high else 9
    if first > last:
        return
    at_low = tight_low and first == low
    if first == last:
        yield first, last, at_low, tight_high
        return
    if at_low:
        yield first, first, True, False
        first += 1
    if tight_high:
        yield last, last, False, True
        last -= 1
    if first <= last:
        yield first, last, False, False


class _Decimals:
    """The decimals after the last digit that a bound has: ``most`` at most, counted from the point
    (None: any number), then ``ended``. Intervals share them."""

    def __init__(self, builder: NfaBuilder, most: int | None, ended: int) -> None:
        self.most = most
        self.ended = ended
        self._builder = builder
        self._first: int | None = None

    def state(self, kind: int, at: int) -> int:
        """The state after ``at`` decimals, where those of a kind may follow."""
        length = 1 if self.most is None else self.most + 1
        if self._first is None:
            builder = self._builder
            first = self._first = builder.new_states(_NOTHING * length)
            builder.edge_blocks.append(
                _decimal_edges(self.most) + np.array([first, 0, 0, first], np.int32)
            )
            builder.epsilon_edges += [(first + i, self.ended) for i in range(_NONZERO * length)]
        return self._first + kind * length + (0 if self.most is None else at)


@cache
def _decimal_edges(most: int | None) -> NDArray[np.int32]:
    """The transitions of ``_Decimals``: by kind, then by how many decimals were read."""
    length = 1 if most is None else most + 1
    edges: list[tuple[int, int, int, int]] = []
    for at in range(1 if most is None else most):
        after = 0 if most is None else at + 1
        for kind in (_ANY, _ZEROS, _NONZERO):
            last = _NINE if kind == _ANY else _DIGIT
            edges.append((kind * length + at, _DIGIT, last, kind * length + after))
        edges.append((_NONZERO * length + at, _DIGIT + 1, _NINE, _ANY * length + after))
    return np.array(edges, np.int32)


class _Side:
    """The unsigned texts of one sign, interval after interval. ``start`` None: after a minus."""

    def __init__(self, builder: NfaBuilder, start: int | None, exponents: bool) -> None:
        self._builder = builder
        self._exponents = exponents
        self._is_negative = start is None
        self._start = builder.new_state() if start is None else start
        self._end = builder.new_state()
        self._is_used = False
        self._decimals = _Decimals(builder, None, self._end)
        # ``rest[k]``: k more digits before the point, and any fraction.
        self._rest = [builder.new_state()]
        builder.epsilon_edge(self._rest[0], self._end)
        self._edge(self._byte(_DOT, self._rest[0]), 0, 9, self._decimals.state(_ANY, 1))
        self._scientific: dict[tuple[int, int], _Decimals] = {}

    def _byte(self, byte: int, source: int) -> int:
        return self._builder.byte_range(byte, byte, source)

    def finish(self, end: int) -> None:
        """Join this side to the whole."""
        if self._is_used:
            if self._is_negative:
                self._builder.edges.append((self._builder.start, _MINUS, _MINUS, self._start))
            self._builder.epsilon_edge(self._end, end)

    def add(self, low: Decimal, low_open: bool, high: Decimal | None, high_open: bool) -> None:
        """Add an interval from 0 on."""
        if high is not None and (low > high or (low == high and (low_open or high_open))):
            return
        self._is_used = True
        self._add_plain(low, low_open, high, high_open)
        if self._exponents:
            if low == 0 and not low_open:
                self._add_zeros()
            self._add_scientific(low, low_open, high, high_open)

    # -- plain decimals ---------------------------------------------------------------------

    def _add_plain(
        self, low: Decimal, low_open: bool, high: Decimal | None, high_open: bool
    ) -> None:
        low_whole, low_rest = _digits_of(low)
        high_whole, high_rest = ("", "") if high is None else _digits_of(high)
        bounds = _Bounds(low_rest, low_open, high_rest, high_open)
        least, most = len(low_whole), len(high_whole) if high is not None else None
        self._add_whole(low_whole, high_whole, True, least == most, bounds)
        if most is not None and most > least:
            self._add_whole(low_whole, high_whole, False, True, bounds)
        if most is None or most - least > 1:
            # Lengths between those of the bounds: nothing else matters.
            builder = self._builder
            at = builder.byte_range(_DIGIT + 1, _NINE, self._start)
            for length in range(2, (least + 1 if most is None else most - 1) + 1):
                at = builder.byte_range(_DIGIT, _NINE, at)
                if length > least:
                    builder.epsilon_edge(at, self._rest[0])
            if most is None:
                builder.edges.append((at, _DIGIT, _NINE, at))

    def _add_whole(self, low: str, high: str, at_low: bool, at_high: bool, bounds: _Bounds) -> None:
        """The numbers with as many digits before the point as the bounds that they are tight to."""
        length = len(low) if at_low else len(high)
        states = {(at_low, at_high): self._start}
        for i in range(length):
            following: dict[tuple[bool, bool], int] = {}
            least = 1 if i == 0 and length > 1 else 0
            for (tight_low, tight_high), state in states.items():
                low_digit = int(low[i]) if tight_low else 0
                high_digit = int(high[i]) if tight_high else 9
                for first, last, a, b in tight_transitions(
                    low_digit, high_digit, tight_low, tight_high, least
                ):
                    if a or b:
                        if (a, b) not in following:
                            following[a, b] = self._builder.new_state()
                        target = following[a, b]
                    else:
                        target = self._whole_rest(length - i - 1)
                    self._edge(state, first, last, target)
            states = following
        for (tight_low, tight_high), state in states.items():
            if bounds.allows_end(0, tight_low, tight_high):
                self._builder.epsilon_edge(state, self._end)
            self._add_decimals(
                self._byte(_DOT, state), tight_low, tight_high, bounds, self._decimals
            )

    def _whole_rest(self, count: int) -> int:
        while len(self._rest) <= count:
            state = self._builder.new_state()
            self._edge(state, 0, 9, self._rest[-1])
            self._rest.append(state)
        return self._rest[count]

    def _add_decimals(
        self, point: int, at_low: bool, at_high: bool, bounds: _Bounds, decimals: _Decimals
    ) -> None:
        """One decimal or more after a point."""
        states: dict[tuple[bool, bool], int] = {(at_low, at_high): point}
        at = 0
        while states and (decimals.most is None or at < decimals.most):
            following: dict[tuple[bool, bool], int] = {}
            for (tight_low, tight_high), state in states.items():
                for first, last, a, b in bounds.transitions(at, tight_low, tight_high):
                    kind = bounds.following(at + 1, a, b)
                    if kind is None:
                        if (a, b) not in following:
                            following[a, b] = self._builder.new_state()
                        self._edge(state, first, last, following[a, b])
                    elif kind != _NOTHING:
                        self._edge(state, first, last, decimals.state(kind, at + 1))
            at += 1
            for (a, b), state in following.items():
                if bounds.allows_end(at, a, b):
                    self._builder.epsilon_edge(state, decimals.ended)
            states = following

    def _edge(self, source: int, first: int, last: int, target: int) -> None:
        self._builder.edges.append((source, _DIGIT + first, _DIGIT + last, target))

    # -- with an exponent -------------------------------------------------------------------

    def _add_zeros(self) -> None:
        builder = self._builder
        zero = self._byte(_DIGIT, self._start)
        decimals = self._byte(_DIGIT, self._byte(_DOT, zero))
        builder.edges.append((decimals, _DIGIT, _DIGIT, decimals))
        exponent = self._scientific_from(-999, 999).ended
        builder.epsilon_edge(zero, exponent)
        builder.epsilon_edge(decimals, exponent)

    def _add_scientific(
        self, low: Decimal, low_open: bool, high: Decimal | None, high_open: bool
    ) -> None:
        """One digit that is not 0, up to 17 decimals, and an exponent; what a double can hold."""
        if low < SMALLEST:
            low, low_open = SMALLEST, False
        if high is None or high > LARGEST:
            high, high_open = LARGEST, False
        if low > high or (low == high and (low_open or high_open)):
            return
        least, most = low.adjusted(), high.adjusted()
        digits = ["".join(map(str, v.as_tuple().digits)) for v in (low, high)]
        bounds = _Bounds(digits[0], low_open, digits[1], high_open)
        if least == most:
            self._add_mantissas(True, True, bounds, least, most)
            return
        self._add_mantissas(True, False, bounds, least, least)
        self._add_mantissas(False, True, bounds, most, most)
        if most - least > 1:
            self._add_mantissas(False, False, bounds, least + 1, most - 1)

    def _add_mantissas(
        self, at_low: bool, at_high: bool, bounds: _Bounds, least: int, most: int
    ) -> None:
        decimals = self._scientific_from(least, most)
        rest = _Bounds(bounds.low[1:], bounds.low_open, bounds.high[1:], bounds.high_open)
        for first, last, a, b in bounds.transitions(0, at_low, at_high, least=1):
            state = self._builder.new_state()
            self._edge(self._start, first, last, state)
            if rest.allows_end(0, a, b):
                self._builder.epsilon_edge(state, decimals.ended)
            self._add_decimals(self._byte(_DOT, state), a, b, rest, decimals)

    def _scientific_from(self, least: int, most: int) -> _Decimals:
        """The decimals of a mantissa, followed by an exponent within bounds."""
        key = least, most
        known = self._scientific.get(key)
        if known is None:
            state = self._builder.new_state()
            known = self._scientific[key] = _Decimals(self._builder, MAX_DECIMALS, state)
            end = self._builder.dfa(exponents_between(least, most), state)
            self._builder.epsilon_edge(end, self._end)
        return known


def _digits_of(value: Decimal) -> tuple[str, str]:
    """The digits before and after the point, without needless zeros (but ``0`` before it)."""
    whole, _, decimals = f"{value:f}".partition(".")
    return whole.lstrip("0") or "0", decimals

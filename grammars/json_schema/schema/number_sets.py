"""The numbers that a typed formula allows, without an automaton: intervals, lists, values."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from decimal import Decimal
from fractions import Fraction

from ramet.grammars.regular.numbers.intervals import Interval, check_digits

from .atoms import AtLeast, AtMost, Integer, MultipleOf, NumberIs
from .formula import Formula, atoms, conjuncts, truth_of

_MAX_POINTS = 16
"""A longer list of numbers is no set of intervals."""


def allows(formula: Formula, number: Decimal) -> bool:
    """Whether a typed formula over numbers allows a number."""
    return truth_of(formula, lambda a: _allows(a, number))


def _allows(value: Hashable, number: Decimal) -> bool:
    if isinstance(value, NumberIs):
        return number in value.values
    if isinstance(value, AtLeast):
        return bool(number > value.bound or (number == value.bound and not value.exclusive))
    if isinstance(value, AtMost):
        return bool(number < value.bound or (number == value.bound and not value.exclusive))
    if isinstance(value, MultipleOf):
        return (Fraction(number) / Fraction(value.divisor)).denominator == 1
    assert isinstance(value, Integer)
    return bool(number == number.to_integral_value())


def listed_numbers(formula: Formula) -> list[Decimal] | None:
    """The numbers that a formula allows, in order, if one of its conjuncts lists them."""
    listed = [
        p.parts[0].values
        for p in conjuncts(formula)
        if p.op == "atom" and isinstance(p.parts[0], NumberIs)
    ]
    if not listed:
        return None
    return sorted(v for v in frozenset.intersection(*listed) if allows(formula, v))


def is_order(formula: Formula) -> bool:
    """Whether a formula depends only on a number's order relative to a few others."""
    return all(
        isinstance(a, AtLeast | AtMost)
        or (isinstance(a, NumberIs) and len(a.values) <= _MAX_POINTS)
        for a in atoms(formula)
    )


def is_bounded_integer(formula: Formula) -> bool:
    """Whether a formula depends only on order, and possibly on being an integer."""
    return all(
        is_order(p) or (p.op == "atom" and isinstance(p.parts[0], Integer))
        for p in conjuncts(formula)
    )


def must_be_integer(formula: Formula) -> bool:
    """Whether a formula requires an integer explicitly, or lists integers."""
    values = listed_numbers(formula)
    if values is not None:
        return all(value == value.to_integral_value() for value in values)
    return any(p.op == "atom" and isinstance(p.parts[0], Integer) for p in conjuncts(formula))


def intervals_of(formula: Formula) -> list[Interval]:
    """The numbers that a formula about order allows.

    Raises:
        GrammarTooComplexError: a bound of too many digits.
    """
    bounds: set[Decimal] = set()
    for value in atoms(formula):
        bounds.update(value.values if isinstance(value, NumberIs) else (value.bound,))  # type: ignore[attr-defined]
    points = sorted(bounds)
    for point in points:
        check_digits(point)
    # Odd regions are points, even ones are between two; of an atom, the regions in which it holds.
    index = {point: 2 * i + 1 for i, point in enumerate(points)}
    everywhere = (1 << (2 * len(points) + 1)) - 1

    def at(value: Hashable) -> int:
        if isinstance(value, NumberIs):
            return sum(1 << index[v] for v in value.values)
        assert isinstance(value, AtLeast | AtMost)
        over = everywhere >> index[value.bound] << index[value.bound]
        if isinstance(value, AtMost) != value.exclusive:
            over &= ~(1 << index[value.bound])
        return over if isinstance(value, AtLeast) else everywhere & ~over

    regions = _where(formula, at, everywhere)
    found: list[Interval] = []
    first: int | None = None
    for region in range(2 * len(points) + 2):
        inside = regions >> region & 1
        if inside and first is None:
            first = region
        elif not inside and first is not None:
            last = region - 1
            # An even region ends at the points around it, and has neither.
            low = points[(first - 1) // 2] if first > 0 else None
            high = points[last // 2] if last < 2 * len(points) else None
            found.append(Interval(low, high, first % 2 == 0, last % 2 == 0))
            first = None
    return found


def _where(formula: Formula, of: Callable[[Hashable], int], everywhere: int) -> int:
    """The cases in which a formula holds, as bits, given those of its atoms."""
    if formula.op == "atom":
        return of(formula.parts[0])
    if formula.op in ("true", "false"):
        return everywhere if formula.op == "true" else 0
    once, more, always = 0, 0, everywhere
    for part in formula.operands:
        cases = _where(part, of, everywhere)
        more |= once & cases
        once |= cases
        always &= cases
    if formula.op == "all":
        return always
    if formula.op == "any":
        return once
    return everywhere & ~once if formula.op == "not" else once & ~more


def has_integer(interval: Interval) -> bool:
    """Whether there is an integer in an interval."""
    low, high = interval.low, interval.high
    if low is None or high is None:
        return True
    first = math.ceil(low)
    if interval.low_open and first == low:
        first += 1
    return first < high or (first == high and not interval.high_open)

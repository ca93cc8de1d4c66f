"""The numbers that a typed formula allows, without an automaton: intervals, lists, values."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
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


def is_order(formula: Formula, *, or_integer: bool = False) -> bool:
    """Whether a formula depends only on a number's order relative to a few others."""
    return all(
        isinstance(a, AtLeast | AtMost)
        or (or_integer and isinstance(a, Integer))
        or (isinstance(a, NumberIs) and len(a.values) <= _MAX_POINTS)
        for a in atoms(formula)
    )


def is_order_or_integer(formula: Formula) -> bool:
    """Whether a formula depends only on order and on being an integer."""
    return is_order(formula, or_integer=True)


def must_be_integer(formula: Formula) -> bool:
    """Whether a formula requires an integer explicitly, or lists integers."""
    values = listed_numbers(formula)
    if values is not None:
        return all(value == value.to_integral_value() for value in values)
    return any(p.op == "atom" and isinstance(p.parts[0], Integer) for p in conjuncts(formula))


class Regions:
    """The numbers cut into regions in which some formulas about order and integers are constant.

    Odd regions are the points that the formulas name, even ones lie between two. Each has two
    cells: its non-integers (bit 2 r of region r) and its integers (bit 2 r + 1).

    Attributes:
        empty: the cells that hold no number, as bits.

    Raises:
        GrammarTooComplexError: a bound of too many digits.
    """

    def __init__(self, formulas: Sequence[Formula]) -> None:
        bounds: set[Decimal] = set()
        for formula in formulas:
            for value in atoms(formula):
                if isinstance(value, NumberIs):
                    bounds.update(value.values)
                elif isinstance(value, AtLeast | AtMost):
                    bounds.add(value.bound)
        self.points = sorted(bounds)
        for point in self.points:
            check_digits(point)
        self._index = {point: 2 * i + 1 for i, point in enumerate(self.points)}
        self._num_regions = 2 * len(self.points) + 1
        self._all = (1 << 2 * self._num_regions) - 1
        self._integers = sum(2 << 2 * region for region in range(self._num_regions))
        self.empty = sum(map(self._empty_cells, range(self._num_regions)))

    def _empty_cells(self, region: int) -> int:
        if region % 2:
            point = self.points[region // 2]
            return (1 if point == point.to_integral_value() else 2) << 2 * region
        return 0 if has_integer(self._interval(region, region)) else 2 << 2 * region

    def _interval(self, first: int, last: int) -> Interval:
        """The numbers of some regions in a row."""
        # An even region ends at the points around it, and has neither.
        low = self.points[(first - 1) // 2] if first > 0 else None
        high = self.points[last // 2] if last < self._num_regions - 1 else None
        return Interval(low, high, first % 2 == 0, last % 2 == 0)

    @property
    def inhabited(self) -> int:
        """The cells that hold numbers, as bits."""
        return self._all & ~self.empty

    def _at(self, value: Hashable) -> int:
        """The cells in which an atom holds."""
        if isinstance(value, Integer):
            return self._integers
        if isinstance(value, NumberIs):
            return sum(3 << 2 * self._index[v] for v in value.values)
        assert isinstance(value, AtLeast | AtMost)
        at = 2 * self._index[value.bound]
        over = self._all >> at << at
        if isinstance(value, AtMost) != value.exclusive:
            over &= ~(3 << at)
        return over if isinstance(value, AtLeast) else self._all & ~over

    def cells_of(self, formula: Formula) -> int:
        """The cells in which a formula holds, as bits; those that hold no number are undefined."""
        return _where(formula, self._at, self._all)

    def intervals(self, cells: int, *, integers: bool) -> list[Interval]:
        """The intervals whose integers, or else whose non-integers, are in some cells."""
        return self._intervals(cells, self.empty, integers)

    def order_intervals(self, cells: int) -> list[Interval]:
        """The intervals of a formula about order: both cells of a region are alike."""
        return self._intervals(cells, 0, False)

    def _intervals(self, cells: int, free: int, odd: bool) -> list[Interval]:
        found: list[Interval] = []
        first: int | None = None
        for region in range(self._num_regions + 1):
            cell = 1 << 2 * region + odd
            # A cell that holds no number continues an interval, and begins none.
            inside = bool(cells & ~free & cell) or (first is not None and bool(free & cell))
            if inside and first is None:
                first = region
            elif not inside and first is not None:
                found.append(self._interval(first, region - 1))
                first = None
        return found


def intervals_of(formula: Formula) -> list[Interval]:
    """The numbers that a formula about order allows.

    Raises:
        GrammarTooComplexError: a bound of too many digits.
    """
    regions = Regions((formula,))
    return regions.order_intervals(regions.cells_of(formula))


def joint_truths(formulas: Sequence[Formula]) -> list[tuple[bool, ...]]:
    """The truth values that one number can give to formulas about order and integers."""
    regions = Regions(formulas)
    found: list[tuple[int, tuple[bool, ...]]] = [(regions.inhabited, ())]
    for formula in formulas:
        cells = regions.cells_of(formula)
        found = [
            (left, (*truths, holds))
            for inside, truths in found
            for left, holds in ((inside & cells, True), (inside & ~cells, False))
            if left
        ]
    return [truths for _, truths in found]


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

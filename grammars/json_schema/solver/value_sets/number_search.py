"""Numbers that a formula allows, found by arithmetic instead of an automaton.

For divisors with more remainders than an automaton can have states. Between the numbers that a
formula names, only divisibility decides, and it is periodic: the search goes through multiples.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterator
from decimal import Context, Decimal
from functools import cached_property

from ramet.grammars.errors import GrammarTooComplexError
from ramet.grammars.json_schema.schema.atoms import AtLeast, AtMost, Integer, MultipleOf, NumberIs
from ramet.grammars.json_schema.schema.formula import FALSE, TRUE, Formula, atoms, replace, truth_of
from ramet.grammars.regular.numbers.intervals import check_digits

_EXACT = Context(prec=10_000)
_MAX_CASES = 4096
_MAX_REMAINDERS = 20_000
_MAX_CANDIDATES = 100_000

Case = tuple[int, tuple[int, ...]]
"""The numbers that are multiples of one number and of none of some others."""

Found = tuple[int, int]
"""A magnitude: digits, and how many of them are decimals."""


def has_many_remainders(formula: Formula) -> bool:
    """Whether an automaton of a formula would need too many states for remainders."""
    divisors = [a.divisor for a in atoms(formula) if isinstance(a, MultipleOf)]
    if not divisors:
        return False
    decimals = max(0, *(-_exponent(d) for d in divisors))
    period = math.lcm(*(_scaled(d, decimals) for d in divisors))
    for prime in (2, 5):  # The last digits decide powers of ten.
        while period % prime == 0:
            period //= prime
    return period > _MAX_REMAINDERS


class NumberSearch:
    """Finds numbers that a typed formula over numbers allows.

    All magnitudes are in units: the last decimal that the formula names is 1.

    Attributes:
        formula: the formula.
        decimals: how many decimals a unit has.
        period: a number's residue by it determines divisibility by all divisors; in units.

    Raises:
        GrammarTooComplexError: too many combinations of divisors, or of too many digits.
    """

    def __init__(self, formula: Formula) -> None:
        self.formula = formula
        named: list[Decimal] = []
        divisors: list[Decimal] = [Decimal(1)]
        for value in atoms(formula):
            if isinstance(value, MultipleOf):
                divisors.append(value.divisor)
            elif isinstance(value, NumberIs):
                named += value.values
            elif isinstance(value, AtLeast | AtMost):
                named.append(value.bound)
        for number in (*named, *divisors):
            check_digits(number)
        self.decimals = max(0, *(-_exponent(n) for n in (*named, *divisors)))
        self._unit = 10**self.decimals
        self.period = math.lcm(*(self._units(d) for d in divisors))
        self._points = {
            sign: sorted(
                {0} | {abs(self._units(n)) for n in named if n == 0 or (n > 0) == (sign > 0)}
            )
            for sign in (1, -1)
        }
        self._cases: dict[Formula, list[Case]] = {}
        self._has_large: dict[int, bool] = {}
        self._named: dict[Hashable, frozenset[int]] = {}
        for sign in (1, -1):
            for low in self._points[sign]:
                self._cases_at(sign, low)  # What is too complex is refused now.

    def _units(self, number: Decimal) -> int:
        return _scaled(number, self.decimals)

    def last_point(self, sign: int) -> int:
        """Above this magnitude only divisibility matters."""
        return self._points[sign][-1]

    def has_large(self, sign: int) -> bool:
        """Whether there are numbers above all that the formula names, and so any number of them."""
        known = self._has_large.get(sign)
        if known is None:
            first = self.last_point(sign) // self._unit + 1
            known = self._has_large[sign] = self.find(sign, first, None, 0) is not None
        return known

    @cached_property
    def is_empty(self) -> bool:
        """Whether no number is allowed."""
        return all(self.find(sign, 0, None, 0) is None for sign in (1, -1))

    def allows(self, sign: int, digits: int, decimals: int) -> bool:
        """Whether a number is allowed."""
        finer = max(0, decimals - self.decimals)
        number = sign * digits * 10 ** (self.decimals + finer - decimals)
        return truth_of(self.formula, lambda value: self._holds(value, number, 10**finer))

    def _holds(self, value: Hashable, number: int, scale: int) -> bool:
        """Whether a condition holds of a number in parts of a unit, of which it has ``scale``."""
        if isinstance(value, NumberIs):
            return number % scale == 0 and number // scale in self._in_units(value)
        (unit,) = self._in_units(value)
        if isinstance(value, AtLeast):
            return number > unit * scale or (number == unit * scale and not value.exclusive)
        if isinstance(value, AtMost):
            return number < unit * scale or (number == unit * scale and not value.exclusive)
        return number % (unit * scale) == 0

    def _in_units(self, value: Hashable) -> frozenset[int]:
        """The numbers that an atom names."""
        known = self._named.get(value)
        if known is None:
            match value:
                case NumberIs(values):
                    known = frozenset(map(self._units, values))
                case AtLeast(bound) | AtMost(bound):
                    known = frozenset((self._units(bound),))
                case MultipleOf(divisor):
                    known = frozenset((self._units(divisor),))
                case _:
                    known = frozenset((self._unit,))
            self._named[value] = known
        return known

    def find(self, sign: int, low: int, high: int | None, decimals: int) -> Found | None:
        """A magnitude from ``low`` to below ``high``, both with some decimals; None: there is none.

        Without ``high`` there is no upper bound.
        """
        if decimals > self.decimals:
            # Within one unit, and never a whole one but at its beginning.
            if self.allows(sign, low, decimals):
                return low, decimals
            return self._right_above(sign, low, decimals)
        scale = 10 ** (self.decimals - decimals)
        first = low * scale
        last = None if high is None else high * scale
        points = self._points[sign]
        for point, after in itertools.zip_longest(points, points[1:]):
            if last is not None and point >= last:
                break
            if point >= first and self.allows(sign, point, self.decimals):
                return point, self.decimals
            begin = max(point, first)
            end = after if last is None else last if after is None else min(after, last)
            if end is None or begin < end:
                found = self._between(sign, begin, end, begin + (begin == point))
                if found is not None:
                    return found
        return None

    def _between(self, sign: int, begin: int, end: int | None, first: int) -> Found | None:
        """A magnitude above ``begin``, or ``first`` itself, below ``end``: between two points."""
        for step, others in self._cases_at(sign, begin):
            candidate = -(-first // step) * step
            for _ in range(_MAX_CANDIDATES):
                if end is not None and candidate >= end:
                    break
                if all(candidate % other for other in others):
                    return candidate, self.decimals
                candidate += step
        return self._right_above(sign, begin, self.decimals)

    def _right_above(self, sign: int, digits: int, decimals: int) -> Found | None:
        """A magnitude with one decimal more that no divisor divides."""
        found = 10 * digits + 5, decimals + 1
        return found if self.allows(sign, *found) else None

    def _cases_at(self, sign: int, begin: int) -> list[Case]:
        """What must divide a number of whole units right above ``begin``, and what must not."""
        number = sign * (10 * begin + 5)

        def here(value: Hashable) -> Formula | None:
            if isinstance(value, Integer | MultipleOf):
                return None
            assert isinstance(value, AtLeast | AtMost | NumberIs)
            return TRUE if self._holds(value, number, 10) else FALSE

        residual = replace(self.formula, here)
        known = self._cases.get(residual)
        if known is None:
            known = self._cases[residual] = self._sound(residual)
        return known

    def _sound(self, residual: Formula) -> list[Case]:
        cases = []
        for wanted, unwanted in dict.fromkeys(self._alternatives(residual, True)):
            step = math.lcm(1, *wanted)
            others = tuple(sorted(other for other in unwanted))
            if any(step % other == 0 for other in others):
                continue
            # Of the multiples of ``step``, every so many-th is a multiple of another.
            every = [math.lcm(step, other) // step for other in others]
            are_coprime = all(math.gcd(a, b) == 1 for a, b in itertools.combinations(every, 2))
            if not are_coprime and math.lcm(*every) > _MAX_CANDIDATES:
                raise GrammarTooComplexError(
                    "", "multipleOf", "too many divisors are combined with each other"
                )
            cases.append((step, others))
        return cases

    def _alternatives(
        self, formula: Formula, truth: bool
    ) -> list[tuple[frozenset[int], frozenset[int]]]:
        """The divisors that a number must have and must not, in one of some ways."""
        op = formula.op
        if op in ("true", "false"):
            return [(frozenset(), frozenset())] if (op == "true") == truth else []
        if op == "atom":
            value = formula.parts[0]
            divisor = self._units(value.divisor) if isinstance(value, MultipleOf) else self._unit
            one = frozenset((divisor,))
            return [(one, frozenset()) if truth else (frozenset(), one)]
        if op == "not":
            return self._alternatives(formula.operands[0], not truth)
        if op == "one":
            found = list(self._one(formula.operands, truth))
        elif (op == "all") == truth:
            found = self._together([self._alternatives(p, truth) for p in formula.operands])
        else:
            found = [c for p in formula.operands for c in self._alternatives(p, truth)]
        if len(found) > _MAX_CASES:
            raise GrammarTooComplexError(
                "", "multipleOf", f"divisors are combined in more than {_MAX_CASES} ways"
            )
        return found

    def _one(
        self, parts: tuple[Formula, ...], truth: bool
    ) -> Iterator[tuple[frozenset[int], frozenset[int]]]:
        if truth:
            for chosen in range(len(parts)):
                yield from self._together(
                    [self._alternatives(p, i == chosen) for i, p in enumerate(parts)]
                )
            return
        yield from self._together([self._alternatives(p, False) for p in parts])
        for pair in itertools.combinations(parts, 2):
            yield from self._together([self._alternatives(p, True) for p in pair])

    @staticmethod
    def _together(
        parts: list[list[tuple[frozenset[int], frozenset[int]]]],
    ) -> list[tuple[frozenset[int], frozenset[int]]]:
        if math.prod(map(len, parts)) > _MAX_CASES:
            raise GrammarTooComplexError(
                "", "multipleOf", f"divisors are combined in more than {_MAX_CASES} ways"
            )
        return [
            (frozenset().union(*(w for w, _ in chosen)), frozenset().union(*(u for _, u in chosen)))
            for chosen in itertools.product(*parts)
        ]


def _scaled(number: Decimal, decimals: int) -> int:
    """A number of at most ``decimals`` decimals without its point, unrounded."""
    sign, digits, exponent = number.normalize(_EXACT).as_tuple()
    assert isinstance(exponent, int)
    value: int = int("".join(map(str, digits))) * int(10 ** (exponent + decimals))
    return -value if sign else value


def _exponent(number: Decimal) -> int:
    exponent = number.normalize(_EXACT).as_tuple().exponent
    assert isinstance(exponent, int)
    return exponent

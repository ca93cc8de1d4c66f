"""How numbers are written: the bounds on digits where a schema sets none.

| what | bound |
|---|---|
| an integer | the range of int64, unless the schema names a number outside it |
| digits before the point | 19; one more than a number that the schema names, up to 40 |
| digits after the point | 9; three more than a number that the schema names, up to 40 |
| digits of an exponent | 3 |
| runs of digits in a ``duration``, ``time`` or ``date-time`` | 9 |
"""

from __future__ import annotations

from decimal import Decimal
from typing import NamedTuple

from ramet.grammars.constraints import Digits, Integers

from .atoms import AtLeast, AtMost, Format, MultipleOf, NumberIs, Pattern, TextLength
from .formula import Formula, all_of, atom, atoms, conjuncts

INT64_LOW, INT64_HIGH = Decimal(-(2**63)), Decimal(2**63 - 1)
_MAX_WHOLE_DIGITS, _MAX_DECIMALS, _MAX_EXPONENT_DIGITS = 19, 9, 3
_MAX_NAMED_DIGITS = 40
_TIME_FORMATS = frozenset({"duration", "time", "date-time"})
_SHORT_RUNS = atom(Pattern("^([0-9]{0,9}[^0-9])*[0-9]{0,9}$"))


class NumberForm(NamedTuple):
    """How numbers are written.

    Attributes:
        integers: numbers that must be integers.
        digits: whether the number of digits is bounded.
    """

    integers: Integers = "any"
    digits: Digits = "any"


def max_digits(formula: Formula) -> tuple[int, int, int]:
    """How many digits a number of a typed formula has at most: before the point, after it, and in
    its exponent."""
    whole, decimals = _MAX_WHOLE_DIGITS, _MAX_DECIMALS
    for number in _named(formula):
        whole = max(whole, number.adjusted() + 2)
        exponent = number.normalize().as_tuple().exponent
        assert isinstance(exponent, int)
        if exponent < 0:
            decimals = max(decimals, 3 - exponent)
    return min(whole, _MAX_NAMED_DIGITS), min(decimals, _MAX_NAMED_DIGITS), _MAX_EXPONENT_DIGITS


def is_beyond_int64(formula: Formula) -> bool:
    """Whether a typed formula names a number outside int64."""
    return any(not INT64_LOW <= number <= INT64_HIGH for number in _named(formula))


def with_short_runs(formula: Formula) -> Formula:
    """A typed formula over strings whose times and durations have few digits in a row.

    One that bounds its strings itself, by a pattern or a largest length, stays as it is.
    """
    parts = [part.parts[0] for part in conjuncts(formula) if part.op == "atom"]
    is_time = any(isinstance(part, Format) and part.name in _TIME_FORMATS for part in parts)
    is_bounded = any(
        isinstance(part, Pattern) or (isinstance(part, TextLength) and part.high is not None)
        for part in parts
    )
    return all_of([formula, _SHORT_RUNS]) if is_time and not is_bounded else formula


def _named(formula: Formula) -> list[Decimal]:
    found: list[Decimal] = []
    for value in atoms(formula):
        if isinstance(value, AtLeast | AtMost):
            found.append(value.bound)
        elif isinstance(value, MultipleOf):
            found.append(value.divisor)
        elif isinstance(value, NumberIs):
            found += value.values
    return found

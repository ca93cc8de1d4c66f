"""JSON number texts whose *values* satisfy bounds, ``multipleOf`` and ``integer``, exactly.

The value of a text with an arbitrary exponent and mantissa can't be compared by a finite
automaton. So all functions here speak of one universe, ``spellings()``:

- plain decimals: ``-?(0|[1-9][0-9]*)(\\.[0-9]+)?``;
- scientific: one nonzero digit, up to 17 decimals, an exponent of one to three digits, with a
  value that a double can hold: what ``json.dumps`` and JavaScript print, and more;
- zero with any exponent.

Within the universe each language holds exactly the right texts, so boolean combinations are exact
too, with ``spellings() - x`` as the complement. ``any_number()`` is the whole of RFC 8259's number
syntax, for a number under no condition at all.

Values are decimals: 0.07 is a multiple of 0.01, in spite of binary floats.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from functools import cache

from ramet.grammars.regular.automata.algebra import intersect_all
from ramet.grammars.regular.automata.dfa import Dfa
from ramet.grammars.regular.regex import regex_dfa

from .intervals import Interval, intervals_dfa
from .multiples import multiples_dfa
from .points import points_dfa

Number = int | float | Decimal
"""A bound or divisor. A float stands for the shortest decimal that reads as it."""


def number_dfa(
    *,
    minimum: Number | None = None,
    maximum: Number | None = None,
    exclusive_minimum: Number | None = None,
    exclusive_maximum: Number | None = None,
    multiple_of: Iterable[Number] = (),
    integer: bool = False,
    exponents: bool = True,
) -> Dfa:
    """The texts in the universe whose values satisfy all conditions.

    ``exponents=False`` leaves the scientific spellings out: a smaller universe, in which any
    divisor is possible. All parts of one boolean combination must speak of the same universe.

    Raises:
        GrammarTooComplexError: a divisor with too many remainders (with exponents, over 32).
    """
    parts = [spellings(exponents=exponents)]
    if minimum is not None:
        parts.append(at_least(minimum, exponents=exponents))
    if exclusive_minimum is not None:
        parts.append(at_least(exclusive_minimum, exclusive=True, exponents=exponents))
    if maximum is not None:
        parts.append(at_most(maximum, exponents=exponents))
    if exclusive_maximum is not None:
        parts.append(at_most(exclusive_maximum, exclusive=True, exponents=exponents))
    divisors = [_decimal(d) for d in multiple_of]
    if integer:
        divisors.append(Decimal(1))
    parts += [multiples(d, exponents=exponents) for d in divisors]
    return parts[0] if len(parts) == 1 else intersect_all(parts[1:])


@cache
def any_number() -> Dfa:
    """Every JSON number (RFC 8259, section 6)."""
    return regex_dfa(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


@cache
def short_number() -> Dfa:
    """Every JSON number whose exponent has at most three digits."""
    return regex_dfa(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?")


@cache
def short_numbers(whole: int, decimals: int, exponent: int) -> Dfa:
    """JSON numbers of at most so many digits before and after the point, and in the exponent."""
    return regex_dfa(
        rf"-?(0|[1-9][0-9]{{0,{whole - 1}}})(\.[0-9]{{1,{decimals}}})?"
        rf"([eE][+-]?[0-9]{{1,{exponent}}})?"
    )


@cache
def one_spelling() -> Dfa:
    """One plain decimal for each value, and ``-0``."""
    return regex_dfa(r"-?(0|[1-9][0-9]*)(\.[0-9]*[1-9])?")


@cache
def spellings(*, exponents: bool = True) -> Dfa:
    """The universe: see the head of this module."""
    return intervals_dfa([Interval()], exponents=exponents)


@cache
def integers(*, exponents: bool = True) -> Dfa:
    """The texts whose values are integers: ``7``, ``7.0``, ``-0``, ``7e2``, not ``7e-1``."""
    return multiples(1, exponents=exponents)


@cache
def plain_integers() -> Dfa:
    """Integers by their digits alone."""
    return regex_dfa("-?(0|[1-9][0-9]*)")


def at_least(value: Number, *, exclusive: bool = False, exponents: bool = True) -> Dfa:
    """The texts whose values are at least (exclusive: over) ``value``."""
    interval = Interval(low=_decimal(value), low_open=exclusive)
    return intervals_dfa([interval], exponents=exponents)


def at_most(value: Number, *, exclusive: bool = False, exponents: bool = True) -> Dfa:
    """The texts whose values are at most (exclusive: under) ``value``."""
    interval = Interval(high=_decimal(value), high_open=exclusive)
    return intervals_dfa([interval], exponents=exponents)


def equal_to(value: Number, *, exponents: bool = True) -> Dfa:
    """The texts whose values are ``value``."""
    return equal_to_any([value], exponents=exponents)


def equal_to_any(values: Iterable[Number], *, exponents: bool = True) -> Dfa:
    """The texts whose values are any of ``values``."""
    return points_dfa(map(_decimal, values), exponents=exponents)


def multiples(divisor: Number, *, exponents: bool = True) -> Dfa:
    """The texts whose values are multiples of ``divisor``, which is over 0."""
    return multiples_dfa(_decimal(divisor), exponents)


def _decimal(value: Number) -> Decimal:
    return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)

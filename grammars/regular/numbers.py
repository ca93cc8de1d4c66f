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

Values are decimals: 0.07 is a multiple of 0.01, whatever binary floats make of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from functools import cache, lru_cache
from typing import Literal

import numpy as np

from .algebra import concat, intersect_all, literal, union_all
from .dfa import EMPTY, Dfa
from .limits import RegularLimits, too_complex
from .nfa import NfaBuilder
from .regex import regex_dfa

Number = int | float | Decimal
"""A bound or divisor. A float stands for the shortest decimal that reads as it."""

_Relation = Literal["<", "<=", "=", ">", ">="]

MAX_DECIMALS = 17
_LARGEST = Decimal("1.7976931348623157e308")
_SMALLEST = Decimal("5e-324")
_MAX_DIGITS = 4_000
_MAX_REMAINDERS = 20_000
_MAX_SCIENTIFIC_REMAINDERS = 32


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
    return _regex(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


@cache
def short_number() -> Dfa:
    """Every JSON number whose exponent has at most three digits."""
    return _regex(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?")


@cache
def spellings(*, exponents: bool = True) -> Dfa:
    """The universe: see the head of this module."""
    return _signed(_magnitudes(exponents=exponents))


@cache
def integers(*, exponents: bool = True) -> Dfa:
    """The texts whose values are integers: ``7``, ``7.0``, ``-0``, ``7e2``, not ``7e-1``."""
    return multiples(1, exponents=exponents)


def at_least(value: Number, *, exclusive: bool = False, exponents: bool = True) -> Dfa:
    """The texts whose values are at least (exclusive: over) ``value``."""
    return _at_least(_decimal(value), exclusive, exponents)


def at_most(value: Number, *, exclusive: bool = False, exponents: bool = True) -> Dfa:
    """The texts whose values are at most (exclusive: under) ``value``."""
    return _at_most(_decimal(value), exclusive, exponents)


def equal_to(value: Number, *, exponents: bool = True) -> Dfa:
    """The texts whose values are ``value``."""
    decimal = _decimal(value)
    equal = _compared(decimal.copy_abs(), "=", exponents)
    if not decimal:
        return _signed(equal)
    return equal if decimal > 0 else concat(literal("-"), equal)


def multiples(divisor: Number, *, exponents: bool = True) -> Dfa:
    """The texts whose values are multiples of ``divisor``, which is over 0."""
    return _multiples(_decimal(divisor), exponents)


# Arithmetic on decimals rounds to the context's precision; only exact methods are used here.


def _decimal(value: Number) -> Decimal:
    return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)


def _mantissa(value: Decimal) -> Decimal:
    """The value with its point after the first digit."""
    digits = value.as_tuple().digits
    return Decimal((0, digits, 1 - len(digits)))


@cache
def _regex(pattern: str) -> Dfa:
    return regex_dfa(pattern)


def _signed(magnitudes: Dfa) -> Dfa:
    return magnitudes.union(concat(literal("-"), magnitudes))


# -- bounds -------------------------------------------------------------------------------------


@lru_cache(maxsize=512)
def _at_least(value: Decimal, exclusive: bool, exponents: bool) -> Dfa:
    if value >= 0:
        above = _compared(value, ">" if exclusive else ">=", exponents)
        if value or exclusive:
            return above
        return above.union(concat(literal("-"), _compared(Decimal(0), "=", exponents)))
    below = _compared(value.copy_negate(), "<" if exclusive else "<=", exponents)
    return _magnitudes(exponents=exponents).union(concat(literal("-"), below))


@lru_cache(maxsize=512)
def _at_most(value: Decimal, exclusive: bool, exponents: bool) -> Dfa:
    return spellings(exponents=exponents).difference(_at_least(value, not exclusive, exponents))


@cache
def _magnitudes(*, exponents: bool) -> Dfa:
    """The unsigned part of the universe."""
    plain = _regex(r"(0|[1-9][0-9]*)(\.[0-9]+)?")
    if not exponents:
        return plain
    in_range = _scientific_compared(_SMALLEST, ">=").difference(_scientific_compared(_LARGEST, ">"))
    return union_all([plain, in_range, _zero_with_exponent()])


@cache
def _zero_with_exponent() -> Dfa:
    return concat(_regex(r"0(\.0+)?"), _exponents_from(None))


def _compared(value: Decimal, relation: _Relation, exponents: bool) -> Dfa:
    """The unsigned texts whose values are in a relation to ``value``, which is 0 or over it."""
    if relation == "<" or relation == "<=":
        opposite = _compared(value, ">=" if relation == "<" else ">", exponents)
        return _magnitudes(exponents=exponents).difference(opposite)
    parts = [_plain_compared(value, relation)]
    if not exponents:
        return parts[0]
    if value:
        parts.append(_scientific_compared(value, relation))
    else:
        if relation != "=":
            parts.append(_scientific_compared(_SMALLEST, ">="))
        if relation != ">":
            parts.append(_zero_with_exponent())
    return union_all(parts).intersect(_magnitudes(exponents=True))


def _digits_of(value: Decimal) -> tuple[str, str]:
    """The digits before and after the point, without needless zeros (but ``0`` before it)."""
    whole, _, decimals = f"{value:f}".partition(".")
    return whole.lstrip("0") or "0", decimals.rstrip("0")


def _plain_compared(value: Decimal, relation: Literal["=", ">", ">="]) -> Dfa:
    """The unsigned plain decimals over, at least, or equal to ``value``."""
    if abs(value.adjusted()) > _MAX_DIGITS:
        raise too_complex("a bound of so many digits", RegularLimits())
    whole, decimals = _digits_of(value)
    builder = NfaBuilder()
    builder.start = builder.new_state()
    end = builder.new_state()
    if relation != "=":
        _add_greater(builder, whole, decimals, end)
    if relation != ">":
        at = builder.literal(whole.encode(), builder.start)
        if decimals:
            at = builder.literal(f".{decimals}".encode(), at)
            builder.edges.append((at, 48, 48, at))
        else:
            dot = builder.literal(b".0", at)
            builder.edges.append((dot, 48, 48, dot))
            builder.empty_move(dot, end)
        builder.empty_move(at, end)
    return builder.build(end)


def _add_greater(builder: NfaBuilder, whole: str, decimals: str, end: int) -> None:
    """Adds the texts over the given digits: decided at the first digit that differs."""
    # ``rest[k]``: k more digits before the point; then an optional fraction.
    rest = [builder.new_state() for _ in range(len(whole) + 1)]
    builder.empty_move(rest[0], end)
    point = builder.byte_range(46, 46, rest[0])
    fraction = builder.byte_range(48, 57, point)
    builder.edges.append((fraction, 48, 57, fraction))
    builder.empty_move(fraction, end)
    for k in range(1, len(rest)):
        builder.edges.append((rest[k], 48, 57, rest[k - 1]))
    longer = builder.new_state()  # More digits than the bound has.
    builder.edges.append((builder.start, 49, 57, longer))
    for _ in range(len(whole) - 1):
        longer = builder.byte_range(48, 57, longer)
    longer = builder.byte_range(48, 57, longer)
    builder.edges.append((longer, 48, 57, longer))
    builder.empty_move(longer, rest[0])
    at = builder.start
    for i, digit in enumerate(whole.encode()):
        if digit < 57:
            builder.edges.append((at, digit + 1, 57, rest[len(whole) - 1 - i]))
        at = builder.byte_range(digit, digit, at)
    at = builder.byte_range(46, 46, at)
    for digit in decimals.encode():
        if digit < 57:
            builder.edges.append((at, digit + 1, 57, fraction))
        at = builder.byte_range(digit, digit, at)
    builder.edges += [(at, 48, 48, at), (at, 49, 57, fraction)]


@cache
def _mantissas() -> Dfa:
    return _regex(rf"[1-9](\.[0-9]{{1,{MAX_DECIMALS}}})?")


def _scientific_compared(value: Decimal, relation: Literal["=", ">", ">="]) -> Dfa:
    """The scientific texts (in any double's range or out of it) compared with ``value`` over 0."""
    exponent = value.adjusted()
    mantissa = _mantissa(value)
    equal = _plain_compared(mantissa, "=").intersect(_mantissas())
    if relation == "=":
        return concat(equal, _exponents_from(exponent).difference(_exponents_from(exponent + 1)))
    above = _plain_compared(mantissa, relation).intersect(_mantissas())
    return union_all(
        [
            concat(above, _exponents_from(exponent)),
            concat(_mantissas(), _exponents_from(exponent + 1)),
        ]
    )


@lru_cache(maxsize=2048)
def _exponents_from(least: int | None) -> Dfa:
    """Exponents of one to three digits, ``e`` included, from ``least`` on (None: all)."""
    if least is None:
        return _regex("[eE][+-]?[0-9]{1,3}")
    positive = _regex(r"[eE]\+?[0-9]{1,3}")
    if least <= 0:
        few = _regex("[0-9]{1,3}").difference(_naturals_from(1 - least))
        return union_all([positive, concat(_regex("[eE]-"), few)])
    return concat(_regex(r"[eE]\+?"), _naturals_from(least))


def _naturals_from(least: int) -> Dfa:
    """One to three digits, zeros in front allowed, whose value is at least ``least``."""
    if least > 999:
        return EMPTY
    table = np.full((1 + 10 + 100 + 1000, 10), -1, np.int32)
    accepting = np.zeros(len(table), np.bool_)
    for length, base in ((0, 0), (1, 1), (2, 11), (3, 111)):
        values = np.arange(10**length)
        accepting[base + values] = (values >= least) & (length > 0)
        if length < 3:
            table[base + values] = base + 10**length + 10 * values[:, None] + np.arange(10)[None, :]
    class_of = np.zeros(256, np.uint8)
    class_of[48:58] = np.arange(10) + 1
    columns = np.concatenate([np.full((len(table), 1), -1, np.int32), table], axis=1)
    return Dfa.from_table(class_of, columns, accepting)


# -- multiples ----------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _multiples(divisor: Decimal, exponents: bool) -> Dfa:
    """Multiples of ``modulus`` times ten to the ``-places``, where ten divides no modulus."""
    if divisor <= 0:
        raise ValueError("a divisor is over 0")
    _, digits, exponent = divisor.as_tuple()
    assert isinstance(exponent, int)
    written = "".join(map(str, digits))
    significant = written.rstrip("0")
    if len(significant) > len(str(_MAX_REMAINDERS)):
        raise too_complex(f"multiples of {divisor}", RegularLimits())
    modulus = int(significant)
    places = len(significant) - len(written) - exponent
    if max(abs(places), 1) * modulus > _MAX_REMAINDERS or (
        exponents and modulus > _MAX_SCIENTIFIC_REMAINDERS
    ):
        raise too_complex(f"multiples of {divisor}", RegularLimits())
    builder = NfaBuilder()
    builder.start = builder.new_state()
    end = builder.new_state()
    _add_plain_multiples(builder, modulus, places, end)
    unsigned = builder.build(end)
    if exponents:
        scientific = _scientific_multiples(modulus, places)
        unsigned = union_all([unsigned, scientific, _zero_with_exponent()])
    return _signed(unsigned.intersect(_magnitudes(exponents=exponents)))


def _add_plain_multiples(builder: NfaBuilder, modulus: int, places: int, end: int) -> None:
    """Adds the plain decimals that are multiples; the states are remainders."""
    zeros = builder.literal(b".0", builder.new_state())  # Only zeros after the point.
    point_zeros = builder.edges[-2][0]
    builder.edges.append((zeros, 48, 48, zeros))
    builder.empty_move(zeros, end)
    whole = [builder.new_state() for _ in range(modulus)]
    for r, state in enumerate(whole):
        for digit in range(10):
            target = whole[(10 * r + digit) % modulus]
            builder.edges.append((state, 48 + digit, 48 + digit, target))
    for digit in range(1, 10):
        target = whole[digit % modulus]
        builder.edges.append((builder.start, 48 + digit, 48 + digit, target))
    zero = builder.byte_range(48, 48, builder.start)
    builder.empty_move(zero, end)
    builder.empty_move(zero, point_zeros)
    if places <= 0:
        # A multiple of the modulus, then as many zeros as the divisor ends in.
        at = whole[0]
        for _ in range(-places):
            at = builder.byte_range(48, 48, at)
        builder.empty_move(at, end)
        builder.empty_move(at, point_zeros)
        return
    # ``decimals[j][r]``: after j decimals.
    decimals = [[builder.new_state() for _ in range(modulus)] for _ in range(places + 1)]
    for r in range(modulus):
        builder.edges.append((whole[r], 46, 46, decimals[0][r]))
        if r * 10**places % modulus == 0:
            builder.empty_move(whole[r], end)
        for j in range(places):
            for digit in range(10):
                target = decimals[j + 1][(10 * r + digit) % modulus]
                builder.edges.append((decimals[j][r], 48 + digit, 48 + digit, target))
            if j and r * 10 ** (places - j) % modulus == 0:
                builder.empty_move(decimals[j][r], end)
    builder.edges.append((zero, 46, 46, decimals[0][0]))
    builder.edges.append((decimals[places][0], 48, 48, decimals[places][0]))
    builder.empty_move(decimals[places][0], end)


def _scientific_multiples(modulus: int, places: int) -> Dfa:
    """The scientific texts that are multiples.

    A mantissa with its last nonzero decimal at place k is n / 10**k; the value is a multiple if
    its exponent is at least k - places + t, where t is the least power of ten that makes n a
    multiple of the modulus. So a state is (k, n modulo the modulus, zeros read since).
    """
    builder = NfaBuilder()
    builder.start = builder.new_state()
    end = builder.new_state()
    exponents: dict[int, int] = {}

    def exponents_from(least: int) -> int:
        if least not in exponents:
            exponents[least] = builder.new_state()
            builder.empty_move(builder.dfa(_exponents_from(least), exponents[least]), end)
        return exponents[least]

    powers = _least_powers(modulus)
    states: dict[tuple[int, int, int], int] = {}
    queue: list[tuple[int, int, int]] = []

    def state(k: int, r: int, num_zeros: int) -> int:
        key = (k, r, num_zeros)
        if key not in states:
            states[key] = builder.new_state()
            queue.append(key)
            power = powers[r]
            if power is not None:
                builder.empty_move(states[key], exponents_from(k - places + power))
        return states[key]

    def add_digits(source: int, k: int, r: int, num_zeros: int) -> None:
        if k + num_zeros >= MAX_DECIMALS:
            return
        builder.edges.append((source, 48, 48, state(k, r, num_zeros + 1)))
        for digit in range(1, 10):
            n = (r * 10 ** (num_zeros + 1) + digit) % modulus
            target = state(k + num_zeros + 1, n, 0)
            builder.edges.append((source, 48 + digit, 48 + digit, target))

    for digit in range(1, 10):
        r = digit % modulus
        builder.edges.append((builder.start, 48 + digit, 48 + digit, state(0, r, 0)))
    for k, r, num_zeros in queue:  # Grows on the way.
        source = states[k, r, num_zeros]
        if k == num_zeros == 0:
            source = builder.byte_range(46, 46, source)
        add_digits(source, k, r, num_zeros)
    return builder.build(end)


def _least_powers(modulus: int) -> list[int | None]:
    """For each remainder, the least power of ten that turns it into 0, if there is one."""
    powers: list[int | None] = []
    for r in range(modulus):
        tries = (t for t in range(modulus.bit_length() + 1) if r * 10**t % modulus == 0)
        powers.append(next(tries, None))
    return powers

"""Promised: number languages hold exactly the texts whose values satisfy the condition."""

from __future__ import annotations

import json
import math
import random
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.grammars.errors import GrammarTooComplexError
from ramet.grammars.regular.numbers import (
    any_number,
    at_least,
    at_most,
    equal_to,
    integers,
    multiples,
    number_dfa,
    spellings,
)

BOUNDS = [
    "0", "1", "-1", "0.5", "-0.5", "12.25", "99999", "100", "-100", "1e10", "-1e5", "1e-7", "5e-5",
    "9", "1.5", "0.001", "9007199254740991", "1e308", "-2.5e-300",
]  # fmt: skip
DIVISORS = [
    "1",
    "2",
    "5",
    "10",
    "0.01",
    "0.5",
    "0.25",
    "7",
    "3",
    "100",
    "0.003",
    "1e-8",
    "1.5",
    "2.5e5",
]


@st.composite
def number_texts(draw: st.DrawFn) -> str:
    """Plain, scientific and odd spellings, many of them near the bounds above."""
    kind = draw(st.integers(0, 3))
    sign = draw(st.sampled_from(["", "-"]))
    if kind == 0:
        whole = str(draw(st.one_of(st.integers(0, 130), st.integers(0, 10**17))))
        digits = draw(st.sampled_from(["", ".0", ".5", ".25", ".250", ".500000001", ".001", ".49"]))
        return sign + whole + digits
    if kind == 1:
        return json.dumps(draw(st.floats(allow_nan=False, allow_infinity=False)))
    if kind == 2:
        near = Decimal(draw(st.sampled_from(BOUNDS)))
        step = Decimal(draw(st.sampled_from(["0", "1", "-1", "1e-9", "-1e-9"])))
        return f"{near + step:f}" if abs(near) < Decimal("1e20") else str(near).lower()
    mantissa = draw(
        st.sampled_from(["1", "9", "1.5", "2.50", "0", "0.0", "9.99", "1.0", "1.00000001"])
    )
    exponent = draw(st.integers(-12, 12))
    mark = draw(st.sampled_from(["e", "E", "e+"])) if exponent >= 0 else "e"
    return f"{sign}{mantissa}{mark}{exponent}"


@settings(max_examples=500, deadline=None)
@given(number_texts(), st.sampled_from(BOUNDS))
def test_bounds_are_exact(text: str, bound: str) -> None:
    value, limit, data = Decimal(text), Decimal(bound), text.encode()
    if not spellings().accepts(data):
        assert "e" in text.lower()
        return
    assert at_least(limit).accepts(data) == (value >= limit)
    assert at_least(limit, exclusive=True).accepts(data) == (value > limit)
    assert at_most(limit).accepts(data) == (value <= limit)
    assert at_most(limit, exclusive=True).accepts(data) == (value < limit)
    assert equal_to(limit).accepts(data) == (value == limit)
    if "e" not in text.lower():
        assert at_least(limit, exponents=False).accepts(data) == (value >= limit)


@settings(max_examples=500, deadline=None)
@given(number_texts(), st.sampled_from(DIVISORS))
def test_multiples_are_exact(text: str, divisor: str) -> None:
    data = text.encode()
    if not spellings().accepts(data):
        return
    expected = (Fraction(text) / Fraction(divisor)).denominator == 1
    assert multiples(Decimal(divisor)).accepts(data) == expected
    if "e" not in text.lower():
        assert multiples(Decimal(divisor), exponents=False).accepts(data) == expected


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False)))
def test_what_json_prints_is_in_the_universe(value: float) -> None:
    data = json.dumps(value).encode()
    assert spellings().accepts(data)
    assert any_number().accepts(data)
    assert integers().accepts(data) == (isinstance(value, int) or value.is_integer())


def javascript(value: float) -> str:
    """How ECMA-262 prints a number (section 6.1.6.1.20)."""
    if value == 0:
        return "0"
    if 1e-6 <= abs(value) < 1e21:
        return f"{Decimal(repr(value)):f}".removesuffix(".0")
    mantissa, exponent = repr(value).split("e") if "e" in repr(value) else (repr(value), "0")
    return f"{mantissa.removesuffix('.0')}e{int(exponent):+d}"


@settings(deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_what_javascript_prints_is_in_the_universe(value: float) -> None:
    text = javascript(value)
    assert math.isclose(float(text), value)
    assert spellings().accepts(text.encode())


@pytest.mark.parametrize(
    "text",
    [
        "01",
        "1.",
        ".5",
        "+1",
        "1e",
        "--1",
        "",
        "-",
        "1e1000",
        "1.8e308",
        "1e-400",
        "0x1",
        "NaN",
        "1 ",
    ],
)
def test_what_is_no_number(text: str) -> None:
    assert not spellings().accepts(text.encode())


def test_combinations() -> None:
    percent = number_dfa(integer=True, minimum=0, maximum=100)
    assert all(percent.accepts(str(n).encode()) for n in range(101))
    assert all(percent.accepts(t) for t in (b"1e2", b"50.0", b"-0"))
    assert not any(percent.accepts(t) for t in (b"101", b"-1", b"0.5", b"1.5e0", b"5e-1"))
    assert number_dfa(minimum=1, maximum=0).is_empty
    assert number_dfa(exclusive_minimum=0, exclusive_maximum=1, integer=True).is_empty
    assert number_dfa(multiple_of=[2, 3], exponents=False) == number_dfa(
        multiple_of=[6], exponents=False
    )
    assert number_dfa(minimum=0.1).accepts(b"0.1")
    assert not number_dfa(exclusive_minimum=0.1).accepts(b"0.10")


def test_complements_within_the_universe() -> None:
    for part in (number_dfa(minimum=5), integers(), multiples(Decimal("0.5"))):
        rest = spellings() - part
        assert rest.is_disjoint(part)
        assert rest | part == spellings()
    assert spellings() - at_least(5) == at_most(5, exclusive=True)


def test_large_divisors_are_refused_or_need_plain_decimals() -> None:
    with pytest.raises(GrammarTooComplexError):
        multiples(997)
    assert multiples(997, exponents=False).accepts(b"1994")
    with pytest.raises(GrammarTooComplexError):
        multiples(10**9 + 7, exponents=False)
    assert multiples(10**9).accepts(b"3000000000")
    assert multiples(10**9).accepts(b"3e9")
    with pytest.raises(GrammarTooComplexError):
        at_least(Decimal("1e5000"))


def test_random_walks_end_in_valid_numbers(rng: random.Random) -> None:
    dfa = number_dfa(minimum=-3, exclusive_maximum=250, multiple_of=[0.5])
    for _ in range(200):
        state, text = dfa.start, b""
        while True:
            choices = [b for b in range(256) if dfa.transitions[state, b] >= 0]
            if dfa.accepting[state] and (not choices or rng.random() < 0.3):
                break
            byte = rng.choice(choices)
            text += bytes((byte,))
            state = int(dfa.transitions[state, byte])
            if len(text) > 40:
                break
        else:
            continue
        if dfa.accepts(text):
            value = Decimal(text.decode())
            assert -3 <= value < 250
            assert value % Decimal("0.5") == 0


@pytest.mark.parametrize("offset", [-1, 0, 1])
@pytest.mark.parametrize("sign", [1, -1])
def test_more_digits_than_a_context_holds_are_not_rounded(offset: int, sign: int) -> None:
    value = Decimal(sign * (10**36 + offset))
    for text in ("1e36", "-1e36", str(10**36 + 1), str(-(10**36) - 1), str(10**36)):
        number = Decimal(text)
        assert at_least(value).accepts(text.encode()) == (number >= value)
        assert at_most(value).accepts(text.encode()) == (number <= value)
        assert equal_to(value).accepts(text.encode()) == (number == value)
    with pytest.raises(GrammarTooComplexError):
        multiples(10**30 + 1)
    assert multiples(Decimal("2.0")).accepts(b"4")

"""Promised: numbers under any divisors and bounds are exact where no automaton could be made."""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.grammars import (
    CompileLimits,
    EmptyConstraintError,
    GrammarCompiler,
    GrammarTooComplexError,
    JsonSchema,
    Vocabulary,
)
from ramet.grammars.json_schema.solver.value_sets import languages

BYTES = Vocabulary.from_tokens([bytes((i,)) for i in range(256)] + [None], {256})
divisors = st.sampled_from([1, 2, 3, 7, 10, 0.5, 0.03, 2.5, 12, 97])
bounds = st.sampled_from([-20, -2.5, 0, 0.25, 3, 20, 100, 1000])
single = st.fixed_dictionaries(
    {},
    optional={
        "multipleOf": divisors,
        "minimum": bounds,
        "exclusiveMaximum": bounds,
        "type": st.just("integer"),
    },
)
schemas = st.recursive(
    single | st.fixed_dictionaries({"enum": st.lists(bounds, min_size=1, max_size=3)}),
    lambda inner: st.one_of(
        st.fixed_dictionaries({"allOf": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"oneOf": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=2)}),
        st.fixed_dictionaries({"not": inner}),
    ),
    max_leaves=5,
)
numbers = st.builds(
    lambda sign, whole, rest: f"{sign}{whole}{rest}",
    st.sampled_from(["", "-"]),
    st.sampled_from([0, 1, 2, 3, 6, 7, 12, 14, 20, 21, 97, 100, 194, 1000, 2100]),
    st.sampled_from(["", ".0", ".5", ".25", ".03", ".06", ".500", ".001", ".0300001"]),
)


def is_valid(schema: dict[str, Any], text: str) -> bool:
    """What JSON Schema says of a number, by exact arithmetic."""
    number = Fraction(text)

    def exact(value: float) -> Fraction:
        return Fraction(Decimal(str(value)))

    checks = {
        "multipleOf": lambda v: (number / exact(v)).denominator == 1,
        "minimum": lambda v: number >= exact(v),
        "exclusiveMaximum": lambda v: number < exact(v),
        "type": lambda v: v == "number" or number.denominator == 1,
        "enum": lambda v: number in map(exact, v),
        "allOf": lambda v: all(is_valid(s, text) for s in v),
        "anyOf": lambda v: any(is_valid(s, text) for s in v),
        "oneOf": lambda v: sum(is_valid(s, text) for s in v) == 1,
        "not": lambda v: not is_valid(v, text),
    }
    return all(checks[keyword](value) for keyword, value in schema.items())


@pytest.fixture(scope="module")
def searching() -> Any:
    """A compiler that makes no automaton of numbers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(languages, "has_many_remainders", lambda formula: True)
        yield GrammarCompiler(BYTES)


@given(schemas, st.lists(numbers, min_size=1, max_size=12), st.randoms())
@settings(max_examples=200)
def test_numbers(searching: GrammarCompiler, schema: Any, texts: list[str], rng: Any) -> None:
    schema = {"allOf": [{"type": "number"}, schema]}
    try:
        grammar = searching.compile(JsonSchema(schema))
    except EmptyConstraintError:
        assert not any(is_valid(schema, text) for text in texts)
        return
    for text in texts:
        assert grammar.match(text).accepted == is_valid(schema, text), text
    # Any way through the masks can be completed.
    matcher = grammar.matcher()
    row = np.zeros(BYTES.num_words, np.int32)
    text = b""
    for _ in range(8):
        matcher.fill_mask(row)
        allowed = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist()
        assert allowed
        token = rng.choice(allowed)
        if token == 256:
            break
        assert matcher.accept(token)
        text += bytes((token,))
    text += matcher.shortest_completion()
    assert is_valid(schema, text.decode()), text


@pytest.mark.parametrize(
    "divisor", [99_991, 1_000_003, 123_456_789, 2**31 - 1, 86_400_000, 1.234567]
)
def test_large_divisors(divisor: float) -> None:
    grammar = GrammarCompiler(BYTES).compile(JsonSchema({"type": "number", "multipleOf": divisor}))
    exact = Decimal(str(divisor))
    for factor in (0, 1, -7, 12_345_678_901):
        assert grammar.match(f"{exact * factor:f}").accepted
    assert not grammar.match(f"{exact * 7 + Decimal('0.0000001'):f}").accepted
    assert not grammar.match("12345").accepted


def test_plain_integers_within_bounds() -> None:
    schema = {"type": "integer", "multipleOf": 7919, "minimum": 100_000, "maximum": 10**12}
    grammar = GrammarCompiler(BYTES).compile(JsonSchema(schema, integers="plain"))
    assert grammar.match(str(7919 * 13)).accepted
    for text in (str(7919 * 12), f"{7919 * 13}.0", "100000", str(7919 * 10**10)):
        assert not grammar.match(text).accepted
    matcher = grammar.matcher()
    for byte in b"5":
        assert matcher.accept(byte)
    number = int("5" + matcher.shortest_completion().decode())
    assert number % 7919 == 0
    assert 100_000 <= number <= 10**12


def test_unique_multiples_in_an_array() -> None:
    schema = {"items": {"multipleOf": 99_991, "type": "integer"}, "uniqueItems": True}
    grammar = GrammarCompiler(BYTES).compile(JsonSchema(schema))
    assert grammar.match(json.dumps([99_991, 0, 199_982])).accepted
    assert not grammar.match(json.dumps([99_991, 0, 99_991])).accepted
    assert not grammar.match("[1]").accepted


def test_exactly_one_of_equal_parts(searching: GrammarCompiler) -> None:
    part = {"multipleOf": 3}
    with pytest.raises(EmptyConstraintError):
        searching.compile(JsonSchema({"type": "number", "oneOf": [part, part]}))


def test_what_is_too_much_is_refused() -> None:
    parts = [{"multipleOf": 6 * n} for n in range(101, 140)]
    with pytest.raises(GrammarTooComplexError, match="divisors"):
        GrammarCompiler(BYTES, CompileLimits()).compile(JsonSchema({"oneOf": parts}))

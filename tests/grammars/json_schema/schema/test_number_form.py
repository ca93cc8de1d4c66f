"""Numbers whose digits are bounded where the schema sets no bound."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.grammars import (
    EmptyConstraintError,
    JsonObject,
    JsonSchema,
    Vocabulary,
    compile_constraint,
    for_writing,
)
from ramet.grammars.constraints.writing import answer_schema

EOS = 256
BYTES = Vocabulary.from_tokens([*(bytes((i,)) for i in range(256)), None], {EOS})


def is_written(schema: Any, text: str) -> bool:
    return bool(compile_constraint(answer_schema(schema), BYTES).match(text))


def longest(constraint: Any, preferred: bytes) -> bytes:
    """What a model writes that prefers some bytes to all others, up to 100 bytes."""
    matcher = compile_constraint(constraint, BYTES).matcher()
    text = b""
    while len(text) < 100:
        byte = next((b for b in preferred if matcher.fork().accept(b)), None)
        if byte is None:
            break
        assert matcher.accept(byte)
        text += bytes((byte,))
    return text


INTEGER, NUMBER = {"type": "integer"}, {"type": "number"}
BOUNDED = [
    (INTEGER, str(2**63 - 1), str(2**63)),
    (INTEGER, str(-(2**63)), str(-(2**63) - 1)),
    ({**INTEGER, "minimum": 0}, str(2**63 - 1), str(2**63)),
    ({"type": ["integer", "null"]}, str(2**63 - 1), str(2**63)),
    ({**INTEGER, "multipleOf": 5}, "9223372036854775805", "9223372036854775810"),
    (NUMBER, "9" * 19, "9" * 20),
    (NUMBER, "-0.123456789", "-0.1234567891"),
    (NUMBER, "1e308", "1e0308"),
    ({}, "9" * 19, "9" * 20),
    ({**NUMBER, "exclusiveMinimum": 0, "maximum": 1}, "0.123456789", "0.1234567891"),
    ({**NUMBER, "multipleOf": 0.01}, "9" * 19 + ".01", "9" * 20 + ".01"),
    ({"format": "duration"}, '"P999999999D"', '"P9999999990D"'),
    ({"format": "time"}, '"12:00:00.123456789Z"', '"12:00:00.1234567891Z"'),
    ({"format": "date-time"}, '"2026-01-01T12:00:00.5Z"', '"2026-01-01T12:00:00.0000000000Z"'),
]


@pytest.mark.parametrize(("schema", "written", "not_written"), BOUNDED)
def test_digits_are_bounded_where_the_schema_sets_no_bound(
    schema: Any, written: str, not_written: str
) -> None:
    assert is_written(schema, written)
    assert not is_written(schema, not_written)
    assert compile_constraint(JsonSchema(schema), BYTES).match(not_written)


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({**INTEGER, "minimum": 10**25}, str(10**26)),
        ({**INTEGER, "maximum": 10**30}, str(10**30)),
        ({**NUMBER, "multipleOf": 1e-12}, "0.000000000001"),
        ({**NUMBER, "exclusiveMinimum": 0, "exclusiveMaximum": 1e-12}, "0.0000000000005"),
        ({"const": 10**40}, str(10**40)),
        ({"format": "duration", "maxLength": 20}, '"P1234567890D"'),
        ({"format": "time", "pattern": "Z$"}, '"12:00:00.1234567890Z"'),
    ],
)
def test_bounds_of_the_schema_open_them(schema: Any, text: str) -> None:
    assert is_written(schema, text)


def test_any_object_has_bounded_numbers_too() -> None:
    text = '{"a": ' + "1" * 20 + "}"
    assert compile_constraint(JsonObject(), BYTES).match(text)
    assert not compile_constraint(for_writing(JsonObject()), BYTES).match(text)


bounds = st.one_of(st.integers(-(10**22), 10**22), st.floats(-1e3, 1e3, allow_nan=False))
schemas = st.fixed_dictionaries(
    {"type": st.sampled_from(["integer", "number"])},
    optional={
        "minimum": bounds,
        "exclusiveMaximum": bounds,
        "multipleOf": st.sampled_from([1, 7, 0.25, 10**6, 1e-11]),
    },
)


@settings(max_examples=60)
@given(schemas, st.permutations(b"0123456789"), st.sampled_from([b"", b"-", b"."]))
def test_every_number_ends_and_is_valid(schema: Any, digits: list[int], first: bytes) -> None:
    try:
        grammar = compile_constraint(JsonSchema(schema), BYTES)
    except EmptyConstraintError:
        return  # no number satisfies the schema
    text = longest(answer_schema(schema), first + bytes(digits) + b".-eE+")
    assert len(text) < 90
    assert grammar.match(text.decode())


@settings(max_examples=20)
@given(st.lists(st.integers(-30, 30), min_size=1, max_size=8, unique=True), st.booleans())
def test_different_numbers_stay_different(values: list[int], is_integer: bool) -> None:
    schema = {"items": INTEGER if is_integer else NUMBER, "uniqueItems": True}
    text = ",".join(map(str, values))
    assert is_written({"type": "array", **schema}, f"[{text}]")
    assert not is_written({"type": "array", **schema}, f"[{text},{values[0]}]")

"""Promised: unevaluated properties and items are exact, however many subschemas evaluate them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from ramet.grammars import (
    ConstraintError,
    EmptyConstraintError,
    GrammarTooComplexError,
    JsonSchema,
    Vocabulary,
    compile_constraint,
)

BYTES = Vocabulary.from_tokens([bytes((i,)) for i in range(256)] + [None], {256})
NAMES = ["a", "b", "c", "d", "ab", "bc"]
names = st.sampled_from(NAMES)
value = st.sampled_from([{"type": "integer"}, {"const": 1}, True])
listed = st.dictionaries(names, value, min_size=1, max_size=2)
evaluating = st.fixed_dictionaries(
    {},
    optional={
        "properties": listed,
        "patternProperties": st.dictionaries(st.sampled_from(["^a", "b", "c$"]), value, max_size=2),
        "additionalProperties": st.sampled_from([True, {"type": "integer"}]),
        "required": st.lists(names, max_size=1),
    },
)
condition = st.fixed_dictionaries(
    {"required": st.lists(names, min_size=1, max_size=1)}, optional={"properties": listed}
)
objects = st.fixed_dictionaries(
    {"unevaluatedProperties": st.sampled_from([False, {"type": "string"}])},
    optional={
        "properties": listed,
        "patternProperties": st.dictionaries(st.sampled_from(["^d", "b"]), value, max_size=1),
        "anyOf": st.lists(evaluating, min_size=1, max_size=3),
        "oneOf": st.lists(evaluating, min_size=1, max_size=2),
        "allOf": st.lists(
            st.fixed_dictionaries({"if": condition, "then": evaluating, "else": evaluating}),
            min_size=1,
            max_size=3,
        ),
        "dependentSchemas": st.dictionaries(names, evaluating, max_size=3),
    },
)
items = st.sampled_from([{"type": "integer"}, {"const": 1}, {"type": "string"}, True])
some_items = st.fixed_dictionaries(
    {},
    optional={
        "prefixItems": st.lists(items, min_size=1, max_size=3),
        "contains": items,
        "items": items,
        "minItems": st.integers(0, 3),
    },
)
arrays = st.fixed_dictionaries(
    {"unevaluatedItems": st.sampled_from([False, {"type": "string"}])},
    optional={
        "prefixItems": st.lists(items, min_size=1, max_size=2),
        "anyOf": st.lists(some_items, min_size=1, max_size=3),
        "allOf": st.lists(
            st.fixed_dictionaries({"if": some_items, "then": some_items, "else": some_items}),
            min_size=1,
            max_size=2,
        ),
    },
)
scalar = st.sampled_from([1, 2, "x", None])


def check(schema: dict[str, Any], instances: list[Any]) -> None:
    """The grammar accepts what a validator does."""
    validator = Draft202012Validator(schema)
    try:
        grammar = compile_constraint(JsonSchema(schema), BYTES)
    except GrammarTooComplexError:  # more conditional contains than are followed
        reject()
    except EmptyConstraintError:
        assert not any(validator.is_valid(each) for each in instances)
        return
    for each in instances:
        assert grammar.match(json.dumps(each)).accepted == validator.is_valid(each), each


@given(objects, st.lists(st.dictionaries(names, scalar, max_size=4), min_size=1, max_size=8))
@settings(max_examples=60)
def test_properties(schema: dict[str, Any], instances: list[Any]) -> None:
    check(schema | {"type": "object"}, instances)


@given(arrays, st.lists(st.lists(scalar, max_size=4), min_size=1, max_size=8))
@settings(max_examples=60)
def test_items(schema: dict[str, Any], instances: list[Any]) -> None:
    check(schema | {"type": "array"}, instances)


def test_forty_subschemas() -> None:
    guards = [
        {"if": {"required": [f"a{i}"]}, "then": {"properties": {f"b{i}": True}}} for i in range(40)
    ]
    schema = {
        "type": "object",
        "properties": {f"a{i}": True for i in range(40)},
        "allOf": guards,
        "unevaluatedProperties": False,
    }
    check(schema, [{"a7": 1, "b7": 2}, {"a7": 1, "b8": 2}, {"b7": 2}, {}, {"c": 1}])


def test_twenty_lengths() -> None:
    schema = {
        "type": "array",
        "anyOf": [{"prefixItems": [{"const": i}] * (i + 1)} for i in range(20)],
        "unevaluatedItems": False,
    }
    check(schema, [[3, 3, 3, 3], [2, 2, 2], [3, 3, 3, 4], [19] * 20, [19] * 21, []])


def test_many_contains_are_refused_by_name() -> None:
    schema = {
        "anyOf": [{"contains": {"const": i}, "minContains": 2} for i in range(9)],
        "unevaluatedItems": False,
    }
    with pytest.raises(ConstraintError, match="contains") as caught:
        compile_constraint(JsonSchema(schema), BYTES)
    assert caught.value.path == "/unevaluatedItems"

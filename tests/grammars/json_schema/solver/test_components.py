"""Promised: chains of ``if`` and ``oneOf`` about different properties are exact and cheap."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from ramet.grammars import EmptyConstraintError, JsonSchema, Vocabulary, compile_constraint
from ramet.grammars.json_schema.schema.atoms import Has, Properties
from ramet.grammars.json_schema.schema.formula import TRUE, all_of, any_of, atom, negate
from ramet.grammars.json_schema.solver.components import independent_parts

BYTES = Vocabulary.from_tokens([bytes((i,)) for i in range(256)] + [None], {256})
NAMES = "abcdefgh"
names = st.sampled_from(NAMES)
value = st.sampled_from([{"const": 1}, {"type": "integer"}, {"type": "string"}, False, True])
part = st.fixed_dictionaries(
    {},
    optional={
        "required": st.lists(names, min_size=1, max_size=2, unique=True),
        "properties": st.dictionaries(names, value, min_size=1, max_size=2),
    },
)
conditions = st.one_of(
    st.fixed_dictionaries({"if": part, "then": part}, optional={"else": part}),
    st.fixed_dictionaries({"oneOf": st.lists(part, min_size=2, max_size=2)}),
    st.fixed_dictionaries({"not": part}),
    part,
)
schemas = st.fixed_dictionaries(
    {"allOf": st.lists(conditions, min_size=2, max_size=6)},
    optional={
        "properties": st.dictionaries(names, value, max_size=3),
        "additionalProperties": st.sampled_from([False, {"type": "integer"}]),
        "maxProperties": st.integers(0, 4),
    },
)
objects = st.dictionaries(names, st.sampled_from([1, 2, "x", None]), max_size=5)


@given(schemas, st.lists(objects, min_size=1, max_size=10), st.booleans())
@settings(max_examples=150)
def test_combined_conditions(schema: dict[str, Any], values: list[Any], any_order: bool) -> None:
    schema = {"type": "object", **schema}
    validator = Draft202012Validator(schema)
    try:
        grammar = compile_constraint(JsonSchema(schema, any_order=any_order), BYTES)
    except EmptyConstraintError:
        assert not any(map(validator.is_valid, values))
        return
    for each in values:
        found = grammar.match(json.dumps(each)).accepted
        if any_order:
            assert found == validator.is_valid(each), each
        else:
            assert not found or validator.is_valid(each), each
    # What was begun can be completed.
    matcher = grammar.matcher()
    text = matcher.shortest_completion()
    assert validator.is_valid(json.loads(text))


def test_sixty_chains() -> None:
    chains = [
        {"if": {"properties": {f"a{i}": {"const": 1}}, "required": [f"a{i}"]},
         "then": {"required": [f"b{i}"]}}
        for i in range(60)
    ]  # fmt: skip
    grammar = compile_constraint(JsonSchema({"type": "object", "allOf": chains}), BYTES)
    assert grammar.match('{"a1": 1, "a7": 1, "b7": 2, "b1": 2}').accepted
    assert not grammar.match('{"a1": 1, "a7": 1, "b1": 2}').accepted


def test_parts_that_share_names_stay_together() -> None:
    a, b, c = (atom(Has(name)) for name in "abc")
    every = atom(Properties((("a", TRUE),), (), negate(TRUE)))
    formula = all_of([every, any_of([a, b]), any_of([negate(b), c]), atom(Has("d"))])
    labels = {name: i + 1 for i, name in enumerate("abcd")}
    parts = independent_parts(formula, labels)
    assert sorted(found for _, found in parts) == [0b1110, 0b10000]
    assert all(every in part.operands for part, _ in parts)
    assert independent_parts(any_of([a, b]), labels) == [(any_of([a, b]), -1)]

"""Objects that list their properties are written without others; no meaning changes."""

from __future__ import annotations

from typing import Any

import pytest

from ramet.grammars.constraints.closed_schema import closed_schema

POINT = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
NAMED = {"$ref": "#/$defs/p"}
DEFS = {"$defs": {"p": POINT}}


def test_plain_objects_are_closed_wherever_they_stand() -> None:
    nested = {
        "properties": {"p": POINT, "q": {"anyOf": [POINT, {"type": "null"}]}},
        "items": POINT,
        "prefixItems": [POINT],
        **DEFS,
    }
    closed = closed_schema(nested)
    parts = (
        closed,
        closed["properties"]["p"],
        closed["properties"]["q"]["anyOf"][0],
        closed["items"],
        closed["prefixItems"][0],
        closed["$defs"]["p"],
    )
    for part in parts:
        assert part["additionalProperties"] is False
    assert "additionalProperties" not in POINT


def test_a_recursive_type_is_closed() -> None:
    node = {"properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/n"}}}}
    closed = closed_schema({"$defs": {"n": node}, "$ref": "#/$defs/n"})
    assert closed["$defs"]["n"]["additionalProperties"] is False


@pytest.mark.parametrize(
    "more",
    [
        {"additionalProperties": True},
        {"dependentRequired": {"x": ["y"]}},
        {"required": ["y"]},
        {"minProperties": 2},
    ],
)
def test_objects_that_may_need_other_properties_stay_open(more: dict[str, Any]) -> None:
    schema = {**POINT, **more}
    assert closed_schema(schema) == schema


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [NAMED, {"properties": {"y": {}}}]},
        {"oneOf": [NAMED, {"$ref": "#/$defs/q"}]},
        {"not": {"$ref": "#/$defs/alias"}},
        {"if": NAMED, "then": {}},
        {"contains": NAMED, "maxContains": 1},
        {**NAMED, "properties": {"y": {}}},
        {"properties": {"y": {}}, "anyOf": [NAMED, {"type": "null"}]},
        {"patternProperties": {"^p": NAMED}, "properties": {"pq": {}}},
        {"patternProperties": {"^p": NAMED, "q$": NAMED}},
        {"enum": [{"p": {"x": 1, "y": 2}}], "properties": {"p": NAMED}},
        {"items": [{"properties": {"deep": {"oneOf": [NAMED]}}}]},
    ],
)
def test_a_document_that_combines_schemas_stays_as_it_is(schema: dict[str, Any]) -> None:
    whole = {**schema, **DEFS}
    assert closed_schema(whole) is whole


def tagged(*branches: dict[str, Any]) -> dict[str, Any]:
    names = [f"b{index}" for index in range(len(branches))]
    return {
        "oneOf": [{"$ref": f"#/$defs/{name}"} for name in names],
        "discriminator": {"propertyName": "kind"},
        "$defs": dict(zip(names, branches, strict=True)),
    }


def branch(*kinds: str, required: tuple[str, ...] = ("kind",)) -> dict[str, Any]:
    return {"properties": {"kind": {"enum": list(kinds)}}, "required": list(required)}


def test_branches_that_a_property_distinguishes_are_closed() -> None:
    closed = closed_schema(tagged(branch("a"), branch("b", "c")))
    assert [b["additionalProperties"] for b in closed["$defs"].values()] == [False, False]


@pytest.mark.parametrize("other", [branch("b", "a"), branch("b", required=()), {}, True])
def test_branches_that_one_value_may_share_stay_open(other: Any) -> None:
    schema = tagged(branch("a"), other)
    assert closed_schema(schema) is schema


def test_a_map_of_objects_has_closed_objects() -> None:
    closed = closed_schema({"patternProperties": {"^p": NAMED}, **DEFS})
    assert closed["$defs"]["p"]["additionalProperties"] is False


def test_data_is_not_read_as_a_schema() -> None:
    schema = {**POINT, "default": {"oneOf": []}, "properties": {"x": {"enum": [{"not": 1}]}}}
    assert closed_schema(schema)["additionalProperties"] is False


@pytest.mark.parametrize("schema", [True, False, {}, {"type": "string"}, {"properties": 3}])
def test_other_schemas_are_left_as_they_are(schema: Any) -> None:
    assert closed_schema(schema) == schema

"""Objects that list their properties are written without others, and stay satisfiable."""

from __future__ import annotations

from typing import Any

import pytest

from ramet.runtime.server.protocol.closed_schema import closed_schema

POINT = {"type": "object", "properties": {"x": {"type": "integer"}}}


def test_plain_objects_are_closed_wherever_they_stand() -> None:
    schema = {**POINT, "$defs": {"p": POINT}, "items": POINT, "properties": {"p": POINT}}
    closed = closed_schema(schema)
    for part in (closed, closed["$defs"]["p"], closed["items"], closed["properties"]["p"]):
        assert part["additionalProperties"] is False
    assert "additionalProperties" not in POINT


@pytest.mark.parametrize(
    "more",
    [
        {"additionalProperties": True},
        {"patternProperties": {"^y": {}}},
        {"allOf": [{"required": ["y"]}]},
        {"required": ["y"]},
        {"minProperties": 2},
        {"enum": [{"y": 1}]},
    ],
)
def test_objects_that_may_need_other_properties_stay_open(more: dict[str, Any]) -> None:
    schema = {**POINT, **more}
    assert closed_schema(schema) == schema


def test_what_schemas_inherit_from_stays_open() -> None:
    base, child = {"$ref": "#/$defs/base"}, {"type": "object", "properties": {"y": {}}}
    for schema in (
        {"allOf": [base, child], "$defs": {"base": POINT}},
        {**base, **child, "$defs": {"base": POINT}},
    ):
        assert closed_schema(schema)["$defs"]["base"] == POINT


def test_a_definition_that_is_only_named_is_closed() -> None:
    schema = {
        "type": "object",
        "properties": {"p": {"$ref": "#/$defs/p", "description": "a point"}},
        "$defs": {"p": POINT},
    }
    assert closed_schema(schema)["$defs"]["p"]["additionalProperties"] is False


@pytest.mark.parametrize("schema", [True, False, {}, {"type": "string"}, {"properties": 3}])
def test_other_schemas_are_left_as_they_are(schema: Any) -> None:
    assert closed_schema(schema) == schema

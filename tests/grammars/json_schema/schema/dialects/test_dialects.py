"""Promised: a schema is read as what it is written in: a draft, OpenAPI, JSON Type Definition."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ramet.grammars import ConstraintError, JsonSchema, Vocabulary, compile_constraint

CAT = {
    "type": "object",
    "required": ["petType"],
    "properties": {"petType": {"type": "string"}, "lives": {"type": "integer"}},
}
DOG = {
    "type": "object",
    "required": ["petType"],
    "properties": {"petType": {"type": "string"}, "barks": {"type": "boolean"}},
}
PET = {
    "oneOf": [{"$ref": "#/components/schemas/Cat"}, {"$ref": "#/components/schemas/Dog"}],
    "discriminator": {
        "propertyName": "petType",
        "mapping": {"dog": "#/components/schemas/Dog"},
    },
}
COUNT = {"type": "integer", "format": "int32", "nullable": True, "minimum": 3}
SCHEMAS = {
    "Cat": CAT,
    "Dog": DOG,
    "Pet": PET,
    "Count": {**COUNT, "exclusiveMinimum": True},
    "Bytes": {"type": "string", "format": "byte"},
}
API = {"openapi": "3.0.3", "info": {}, "paths": {}, "components": {"schemas": SCHEMAS}}
DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"


def holds(vocab: Vocabulary, constraint: JsonSchema, good: list[Any], bad: list[Any]) -> None:
    grammar = compile_constraint(constraint, vocab)
    assert [value for value in good if not grammar.match(json.dumps(value))] == []
    assert [value for value in bad if grammar.match(json.dumps(value))] == []


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        (
            "Pet",
            [{"petType": "Cat", "lives": 9}, {"petType": "dog", "barks": True}, {"petType": "Dog"}],
            [{"petType": "Cow"}, {"petType": "Cat", "lives": "x"}, {"lives": 1}, {}],
        ),
        ("Count", [None, 4, 2**31 - 1], [3, 2**31, "x"]),
        ("Bytes", ["", "aGk=", "YWJj"], ["aGk", "a", "====", 1]),
    ],
)
def test_openapi_3_0(vocab: Vocabulary, name: str, good: list[Any], bad: list[Any]) -> None:
    reference = f"#/components/schemas/{name}"
    documents = {"api.json": API}
    holds(vocab, JsonSchema({"$ref": "api.json" + reference}, documents=documents), good, bad)
    holds(vocab, JsonSchema({**API, "$ref": reference}), good, bad)
    alone = {**SCHEMAS[name], "components": API["components"]}
    holds(vocab, JsonSchema(alone, dialect="openapi-3.0"), good, bad)
    named = {**alone, "$schema": "https://spec.openapis.org/oas/3.0/dialect/2024-10-18"}
    holds(vocab, JsonSchema(named), good, bad)


def test_nullable_without_a_dialect(vocab: Vocabulary) -> None:
    holds(vocab, JsonSchema({"type": "string", "nullable": True}), ["a", None], [1])
    holds(vocab, JsonSchema({"type": "string", "nullable": False}), ["a"], [None])
    named = {"$schema": DRAFT_2020, "type": "string", "nullable": True}
    holds(vocab, JsonSchema(named), ["a"], [None])


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "int8"}, [-128, 127], [128, 1.5, "1"]),
        ({"type": "uint32", "nullable": True}, [None, 2**32 - 1], [-1, 2**32]),
        ({"type": "timestamp"}, ["1990-12-31T15:59:60-08:00"], ["1990-12-31", 1]),
        ({"elements": {"enum": ["a", "b"]}}, [[], ["a", "b"]], [["c"], "a", [None]]),
        ({"values": {"type": "float64"}}, [{}, {"x": 1.5}], [{"x": "1"}, []]),
        (
            {"properties": {"a": {"type": "string"}}, "optionalProperties": {"b": {}}},
            [{"a": ""}, {"a": "", "b": [1]}],
            [{}, {"a": 1}, {"a": "", "c": 1}],
        ),
        (
            {"optionalProperties": {"b": {}}, "additionalProperties": True},
            [{}, {"c": 1}],
            [[], None],
        ),
        (
            {
                "discriminator": "kind",
                "mapping": {
                    "a": {"properties": {"x": {"type": "float32"}}},
                    "b": {"optionalProperties": {"y": {"ref": "some/one"}}},
                },
                "definitions": {"some/one": {"enum": ["u"], "nullable": True}},
            },
            [{"kind": "a", "x": 1.5}, {"kind": "b"}, {"kind": "b", "y": None}],
            [{"kind": "a"}, {"kind": "c"}, {"kind": "b", "x": 1}, {"y": None}],
        ),
    ],
)
def test_json_type_definition(
    vocab: Vocabulary, schema: dict[str, Any], good: list[Any], bad: list[Any]
) -> None:
    holds(vocab, JsonSchema(schema), good, bad)
    holds(vocab, JsonSchema(schema, dialect="jtd"), good, bad)


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"type": "string", "minLength": 2}, "/minLength"),
        ({"type": "integer"}, "/type"),
        ({"properties": {"a": {}}, "optionalProperties": {"a": {}}}, "/optionalProperties/a"),
        ({"discriminator": "k", "mapping": {"v": {"type": "string"}}}, "/mapping/v"),
        ({"ref": "a"}, "/$ref"),
    ],
)
def test_malformed_type_definitions(vocab: Vocabulary, schema: Any, path: str) -> None:
    with pytest.raises(ConstraintError) as refused:
        compile_constraint(JsonSchema(schema, dialect="jtd"), vocab)
    assert refused.value.path.endswith(path)


def test_later_keywords_are_annotations(vocab: Vocabulary) -> None:
    for dialect, schema, value in (
        ("draft-04", {"const": 1}, 2),
        ("draft-06", {"if": {"const": 2}, "then": False}, 2),
        ("draft-07", {"dependentRequired": {"a": ["b"]}}, {"a": 1}),
        ("2019-09", {"prefixItems": [False]}, [1]),
    ):
        constraint = JsonSchema(schema, dialect=dialect)  # type: ignore[arg-type]
        assert compile_constraint(constraint, vocab).match(json.dumps(value))
        assert not compile_constraint(JsonSchema(schema), vocab).match(json.dumps(value))


def test_vocabularies_of_a_meta_schema(vocab: Vocabulary) -> None:
    uri = "https://example.org/meta"
    core = "https://json-schema.org/draft/2020-12/vocab/"
    meta = {"$schema": DRAFT_2020, "$id": uri, "$vocabulary": {core + "applicator": True}}
    schema = {"$schema": uri, "properties": {"a": {"type": "string"}, "b": False}}
    holds(vocab, JsonSchema(schema, documents={uri: meta}), [{"a": 1}], [{"b": 1}])
    meta["$vocabulary"] = {"https://example.org/units": True}
    with pytest.raises(ConstraintError, match="units"):
        compile_constraint(JsonSchema(schema, documents={uri: meta}), vocab)

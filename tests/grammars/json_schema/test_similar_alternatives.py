"""Promised: forty alternatives that are much alike are followed exactly, and can be completed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import jsonschema
import pytest

from ramet.grammars import CompileLimits, GrammarCompiler, JsonSchema, Vocabulary
from ramet.grammars.constraints.writing import answer_schema

BYTES = Vocabulary.from_tokens([bytes((i,)) for i in range(256)] + [None], {256})
WORK = CompileLimits(max_branches=2_000)
"""A tenth of the cases that are allowed by default."""


def overlapping_ranges(i: int) -> dict[str, Any]:
    value = {"type": "integer", "minimum": i * 10, "maximum": i * 10 + 15}
    properties = {"name": {"type": "string"}, "value": value, "id": {"type": "integer"}}
    return {"type": "object", "properties": properties, "required": ["name", "value"]}


def other_names(i: int) -> dict[str, Any]:
    properties = {"a": {"type": "string"}, f"k{i}": {"type": "string"}}
    return {"type": "object", "properties": properties, "required": list(properties)}


def wide(i: int) -> dict[str, Any]:
    properties: dict[str, Any] = {f"f{j}": {"type": "string"} for j in range(12)}
    properties[f"f{i % 12}"] = {"type": "integer", "minimum": i}
    return {"type": "object", "properties": properties, "required": [f"f{i % 12}"]}


VALUES: list[Any] = [
    {"name": "x", "value": 17},
    {"name": "x", "value": 13},
    {"name": "x", "value": 400},
    {"name": "x", "value": 17.5},
    {"name": "x", "id": 1, "value": 28},
    {"a": "x", "k3": "y"},
    {"a": "x", "k3": "y", "z": 1},
    {"a": "x", "k3": "y", "k4": "y"},
    {"a": "x", "k3": "y", "k4": 4},
    {"k3": "y", "k4": "y"},
    {"f3": 40},
    {"f3": 2},
    {"f3": 3},
    {"f3": 14, "f0": "x"},
    {"f3": 40, "f4": 40},
]


@pytest.mark.parametrize("keyword", ["oneOf", "anyOf"])
@pytest.mark.parametrize("alternative", [overlapping_ranges, other_names, wide])
@pytest.mark.parametrize("is_closed", [False, True])
@pytest.mark.parametrize("make", [JsonSchema, answer_schema])
def test_similar_alternatives_are_exact(
    keyword: str,
    alternative: Callable[[int], dict[str, Any]],
    is_closed: bool,
    make: Callable[[Any], JsonSchema],
) -> None:
    closed = {"additionalProperties": False} if is_closed else {}
    schema = {keyword: [alternative(i) | closed for i in range(40)]}
    grammar = GrammarCompiler(BYTES, WORK).compile(make(schema))
    judge = jsonschema.Draft202012Validator(schema)
    for value in VALUES:
        text = json.dumps(value, separators=(",", ":"))
        matched = bool(grammar.match(text))
        if make is JsonSchema:
            assert matched == judge.is_valid(value), text
        assert not matched or judge.is_valid(value), text
        matcher = grammar.matcher()
        for byte in text.encode():
            if not matcher.accept(byte):
                assert not matched
                break
            completed = matcher.fork().shortest_completion() if byte in b"{," else b""
            if completed:
                assert judge.is_valid(json.loads(matcher.text + completed)), matcher.text
        else:
            assert matcher.is_accepting == matched

"""Promised: arrays that must contain many kinds of items are decided exactly."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from ramet.grammars import GrammarCompiler, JsonSchema, Vocabulary

BYTES = Vocabulary.from_tokens([bytes((i,)) for i in range(256)] + [None], {256})
CONTAINED = [{"type": "integer", "minimum": 10 * i, "maximum": 10 * i + 9} for i in range(10)]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "allOf": [{"contains": c} for c in CONTAINED]},
        {"unevaluatedItems": False, "anyOf": [{"contains": c} for c in CONTAINED]},
        {"unevaluatedItems": False, "oneOf": [{"contains": c} for c in CONTAINED]},
        {"unevaluatedItems": False, "anyOf": [
            {"contains": c, "prefixItems": [True]} for c in CONTAINED[:3]]},
    ],
)  # fmt: skip
def test_many_contains(schema: Any) -> None:
    grammar = GrammarCompiler(BYTES).compile(JsonSchema(schema))
    judge = jsonschema.Draft202012Validator(schema)
    all_of_them = [10 * i for i in range(10)]
    values: list[Any] = [
        all_of_them, [*all_of_them, 5], all_of_them[1:], [*all_of_them[1:], 9, "x"],
        [], [3], [3, 4], [3, 14], [3, 14, 110], [110], ["x", 3], ["x"], [3, "x"],
    ]  # fmt: skip
    for value in values:
        text = json.dumps(value)
        assert bool(grammar.match(text)) == judge.is_valid(value), value

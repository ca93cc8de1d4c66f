"""Promised: in a fixed order, an object that may have other properties takes late optional ones,
under their own schemas; one that may not goes on in its order."""

from __future__ import annotations

from typing import Any

import pytest

from ramet.grammars import JsonSchema, Vocabulary, compile_constraint

OPEN: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"const": "foo"}, "b": {"const": "bar"}, "c": {"type": "integer"}},
    "required": ["b"],
}
CLOSED = {**OPEN, "additionalProperties": False}
TYPED = {**OPEN, "additionalProperties": {"type": "null"}}
DEPENDENT = {**OPEN, "dependentRequired": {"c": ["a"]}}


@pytest.mark.parametrize(
    ("schema", "text", "accepted"),
    [
        (OPEN, '{"b":"bar","a":"foo"}', True),
        (OPEN, '{"b":"bar","a":"BAD"}', False),
        (OPEN, '{"b":"bar","x":1,"c":2,"a":"foo"}', True),
        (OPEN, '{"b":"bar","x":1,"c":"2"}', False),
        (OPEN, '{"c":1,"b":"bar"}', False),
        (OPEN, '{"b":"bar","a":"foo","a":"foo"}', False),
        (TYPED, '{"b":"bar","x":null,"a":"foo"}', True),
        (TYPED, '{"b":"bar","a":null}', False),
        (CLOSED, '{"b":"bar","a":"foo"}', False),
        (CLOSED, '{"a":"foo","b":"bar"}', True),
        (DEPENDENT, '{"a":"foo","b":"bar","c":1}', True),
        (DEPENDENT, '{"b":"bar","a":"foo"}', True),
        (DEPENDENT, '{"b":"bar","c":1}', False),
    ],
)
def test_late_names(vocab: Vocabulary, schema: Any, text: str, accepted: bool) -> None:
    constraint = JsonSchema(schema, whitespace="none", any_order=False)
    assert bool(compile_constraint(constraint, vocab).match(text)) == accepted

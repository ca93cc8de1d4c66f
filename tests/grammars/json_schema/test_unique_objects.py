"""Arrays of objects that must differ: exact, and the same masks as a full search gives."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from ramet.grammars import Grammar, JsonSchema, Vocabulary, compile_constraint
from ramet.grammars.json_schema.solver.differing import Differing

_NUMBERS = {"enum": [1, 2]}
_CLOSED = {"type": "object", "additionalProperties": False}

ITEMS: list[dict[str, Any]] = [
    {**_CLOSED, "properties": {"a": _NUMBERS, "b": _NUMBERS}},
    {**_CLOSED, "properties": {"a": _NUMBERS, "c": {"type": "string"}}, "required": ["a"]},
    {**_CLOSED, "properties": {"a": _NUMBERS, "b": _NUMBERS}, "required": ["a", "b"]},
    {**_CLOSED, "properties": {"a": _NUMBERS, "c": {"type": "string"}}, "minProperties": 2},
    {"type": "object", "properties": {"a": _NUMBERS}},
    {"type": "object", "properties": {"a": _NUMBERS}, "maxProperties": 1},
    {
        **_CLOSED,
        "properties": {"a": _NUMBERS, "b": _NUMBERS, "c": {"type": "string"}},
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
        "dependentRequired": {"a": ["b"]},
    },
    {
        **_CLOSED,
        "properties": {"a": _NUMBERS, "c": {"type": "string"}},
        "if": {"properties": {"a": {"const": 1}}},
        "then": {"properties": {"c": {"const": "x"}}},
    },
    {"type": "object", "patternProperties": {"^c": {"type": "string"}}, "required": ["a"]},
]
_OBJECTS: list[dict[str, Any]] = [
    {}, {"a": 1}, {"a": 2}, {"b": 1}, {"a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": 1, "c": "x"},
    {"a": 1, "c": "y"}, {"a": 2, "b": 1, "c": "x"}, {"c": "x"}, {"d": 1}, {"d": 1, "a": 1},
]  # fmt: skip
_ARRAYS = [list(a) for n in range(4) for a in itertools.product(_OBJECTS, repeat=n)]


def grammar_of(item: dict[str, Any], vocab: Vocabulary, *, any_order: bool = True) -> Grammar:
    schema = {"type": "array", "uniqueItems": True, "items": item}
    constraint = JsonSchema(schema, whitespace="none", any_order=any_order)
    return compile_constraint(constraint, vocab)


def texts_of(item: dict[str, Any], count: int, seed: int) -> list[str]:
    """Some arrays that are valid, or become so."""
    validator = Draft202012Validator(item)
    valid = [a for a in _ARRAYS if len(a) > 1 and all(map(validator.is_valid, a))]
    chosen = random.Random(seed).sample(valid, min(count, len(valid)))
    return [json.dumps(a, separators=(",", ":")) for a in chosen]


@pytest.mark.parametrize("item", ITEMS, ids=lambda s: json.dumps(s)[-60:])
def test_accepts_exactly_the_valid_arrays(item: dict[str, Any], vocab: Vocabulary) -> None:
    grammar = grammar_of(item, vocab)
    validator = Draft202012Validator({"type": "array", "uniqueItems": True, "items": item})
    for array in random.Random(3).sample(_ARRAYS, 60):
        text = json.dumps(array, separators=(",", ":"))
        assert bool(grammar.match(text)) == validator.is_valid(array), array
    for text in texts_of(item, 12, 5):
        assert bool(grammar.match(text)) == validator.is_valid(json.loads(text)), text


@pytest.mark.parametrize("any_order", [True, False], ids=["any order", "in order"])
@pytest.mark.parametrize("item", ITEMS, ids=lambda s: json.dumps(s)[-60:])
def test_masks_are_those_of_a_full_search(
    item: dict[str, Any],
    vocab: Vocabulary,
    any_order: bool,
    monkeypatch: pytest.MonkeyPatch,
    allowed_tokens: Callable[..., set[int]],
) -> None:
    texts = texts_of(item, 4, 6)

    def masks() -> list[set[int]]:
        grammar = grammar_of(item, vocab, any_order=any_order)
        found = []
        for text in texts:
            matcher = grammar.matcher()
            for byte in text.encode():
                found.append(allowed_tokens(matcher, vocab))
                if not matcher.accept_bytes(bytes((byte,))):
                    break
        return found

    quick = masks()
    monkeypatch.setattr(Differing, "of", lambda *_, **__: None)
    assert quick == masks()

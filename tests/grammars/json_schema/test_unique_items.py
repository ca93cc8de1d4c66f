"""Arrays whose items must, or must not, all be different: exact, and never a dead end."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import jsonschema_rs
import numpy as np
import pytest
from jsonschema import Draft202012Validator

from ramet.grammars import (
    EmptyConstraintError,
    GrammarCompiler,
    JsonSchema,
    Vocabulary,
    compile_constraint,
)

_ITEMS: list[Any] = [1, 2, 3, 5, 9, "a", [], [1]]
_ARRAYS = [list(a) for n in range(4) for a in itertools.product(_ITEMS, repeat=n)]
_EQUAL = {"type": "array", "not": {"uniqueItems": True}}
_UNIQUE = {"type": "array", "uniqueItems": True}

SCHEMAS: list[dict[str, Any]] = [
    {**_EQUAL, "maxItems": 2},
    {**_EQUAL, "maxItems": 3, "items": {"enum": [1, 2, 3]}},
    {**_EQUAL, "maxItems": 2, "items": {"type": "integer"}},
    {**_EQUAL, "maxItems": 2, "items": {"type": "array"}},
    {**_EQUAL, "prefixItems": [{"enum": [1, 2]}, {"enum": [2, 3]}], "items": False},
    {**_EQUAL, "prefixItems": [{}, {"enum": [2, "a"]}], "items": False},
    {**_UNIQUE, "prefixItems": [{}, {"const": "a"}], "minItems": 2},
    {**_UNIQUE, "prefixItems": [{}, {"const": 5}, {"enum": [5, 9]}], "minItems": 3},
    {**_UNIQUE, "items": {"uniqueItems": True, "items": {"enum": [1, 2]}}, "minItems": 2},
    {
        **_UNIQUE,
        "anyOf": [
            {"minItems": 3, "items": {"enum": [1, 2]}},
            {"contains": {"const": 9}, "maxItems": 1},
        ],
    },
    {
        "type": "array",
        "maxItems": 3,
        "oneOf": [
            {"uniqueItems": True, "items": {"enum": [1, 2, 3]}},
            {"items": {"enum": [1, 2]}},
        ],
    },
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda s: json.dumps(s)[:60])
def test_accepts_exactly_the_valid_arrays(schema: dict[str, Any], vocab: Vocabulary) -> None:
    grammar = compile_constraint(JsonSchema(schema), vocab)
    validator = Draft202012Validator(schema)
    for array in [*random.Random(3).sample(_ARRAYS, 150), [], [1, 1], ["a", "a"], [[], []]]:
        assert bool(grammar.match(json.dumps(array))) == validator.is_valid(array), array


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda s: json.dumps(s)[:60])
def test_masks_are_exact_and_lead_on(
    schema: dict[str, Any],
    vocab: Vocabulary,
    allowed_tokens: Any,
) -> None:
    grammar = compile_constraint(JsonSchema(schema), vocab)
    rng = random.Random(4)
    for _ in range(4):
        matcher = grammar.matcher()
        for _ in range(14):
            allowed = allowed_tokens(matcher, vocab)
            assert allowed
            if rng.random() < 0.3:
                assert allowed == {t for t in range(vocab.size) if matcher.fork().accept(t)}
            choice = sorted(allowed - {0})
            if not choice:
                break
            assert matcher.accept(rng.choice(choice))


@pytest.mark.parametrize(
    ("text", "rest"),
    [("[1", [" ", ","]), ("[3.00E-000", [" ", ","]), ("[1,2", [" ", ",", "."])],
)
def test_what_follows_an_item_waits_for_its_text(
    text: str, rest: list[str], vocab: Vocabulary, allowed_tokens: Any
) -> None:
    schema = {**_EQUAL, "maxItems": 3, "items": {"enum": [1, 2, 3]}}
    matcher = compile_constraint(JsonSchema(schema), vocab).matcher()
    assert matcher.accept_bytes(text.encode())
    allowed = allowed_tokens(matcher, vocab)
    for byte in rest:
        assert (2 + ord(byte) in allowed) == matcher.fork().accept_bytes(byte.encode())


def test_numbers_that_are_distinguished_have_short_exponents(vocab: Vocabulary) -> None:
    grammar = compile_constraint(JsonSchema({**_UNIQUE, "items": {"type": "number"}}), vocab)
    assert grammar.match("[1e300, 1e-300, 1]")
    assert not grammar.match("[1e999, 1e999]")
    assert not grammar.match("[1e30000, 1]")


def test_items_with_many_choices_are_decided_immediately(vocab: Vocabulary) -> None:
    names = [f"v{i}" for i in range(300)]
    schema = {**_UNIQUE, "items": {"enum": names}, "minItems": 3, "maxItems": 100}
    grammar = compile_constraint(JsonSchema(schema), vocab)
    assert grammar.match(json.dumps(names[:4]))
    assert not grammar.match(json.dumps(["v1", "v2", "v1"]))


BYTES = Vocabulary.from_tokens([bytes((i,)) for i in range(256)] + [None], {256})
FLAG = {"type": "boolean"}
FEW_ARRAYS = {"type": "array", "items": FLAG, "maxItems": 1}
FEW_OBJECTS = {"type": "object", "properties": {"a": FLAG, "b": {"const": 1}}}
FEW_OBJECTS["additionalProperties"] = False  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("items", "count"),
    [
        (FEW_ARRAYS, 3),
        (FEW_OBJECTS, 6),
        ({**FEW_OBJECTS, "required": ["a"]}, 4),
        ({**FEW_OBJECTS, "maxProperties": 1}, 4),
        ({"type": "array", "prefixItems": [FLAG, {"type": "null"}], "items": False}, 5),
        ({"type": ["array", "null"], "items": FEW_ARRAYS, "minItems": 1, "maxItems": 1}, 4),
        ({"anyOf": [FEW_ARRAYS, {"type": "number", "minimum": 2, "maximum": 2}]}, 4),
        ({"type": "array", "items": FLAG, "maxItems": 2, "uniqueItems": True}, 5),
    ],
)
def test_finite_sets_of_arrays_and_objects_are_counted(items: Any, count: int) -> None:
    schema = {"type": "array", "items": items, "uniqueItems": True}
    compiler = GrammarCompiler(BYTES)
    with pytest.raises(EmptyConstraintError):
        compiler.compile(JsonSchema({**schema, "minItems": count + 1}))
    grammar = compiler.compile(JsonSchema({**schema, "minItems": count}, whitespace="none"))
    rng = random.Random(count)
    row = np.zeros(BYTES.num_words, np.int32)
    for _ in range(4):
        matcher = grammar.matcher()
        text = bytearray()
        while not matcher.is_finished:
            matcher.fill_mask(row)
            ids = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))
            assert len(ids), text
            # White space and zeros without end would make it long.
            short = [i for i in ids.tolist() if i > 255 or chr(i) not in "0eE."]
            token_id = int(rng.choice(short or ids.tolist()))
            assert matcher.accept(token_id)
            text += bytes((token_id,)) if token_id < 256 else b""
        assert jsonschema_rs.is_valid({**schema, "minItems": count}, json.loads(text))


def test_a_node_inside_itself_has_values_without_end() -> None:
    schema = {
        "type": "array", "items": {"$ref": "#/$defs/nest"}, "uniqueItems": True, "minItems": 9,
        "$defs": {"nest": {"type": "array", "items": {"$ref": "#/$defs/nest"}, "maxItems": 1}},
    }  # fmt: skip
    assert GrammarCompiler(BYTES).compile(JsonSchema(schema))

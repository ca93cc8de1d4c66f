"""Items that must differ: what is left out is what equals an item, and what could only do so."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from ramet.grammars import GrammarCompiler, JsonSchema, Vocabulary
from ramet.grammars.json_schema.schema.values import canonical

BYTES = Vocabulary.from_tokens([bytes((i,)) for i in range(256)] + [None], {256})
COMPILER = GrammarCompiler(BYTES)


def _unique(items: Any, **more: Any) -> dict[str, Any]:
    return {"type": "array", "uniqueItems": True, "items": items, **more}


ITEMS: dict[str, Any] = {
    "few integers": {"type": "integer", "minimum": 8, "maximum": 12},
    "few multiples": {"type": "number", "minimum": 0, "maximum": 1, "multipleOf": 0.5},
    "short strings": {"type": "string", "maxLength": 1, "pattern": '^[ab"é]*$'},
    "two letters": {"type": "string", "pattern": "^[ab]{0,2}$"},
    "bounded strings": {"type": "string", "maxLength": 2},
    "listed": {"enum": ["a", "ab", "\\", "é\n", 1, 10, 2.5, None, True, [1], {"a": 1}]},
    "scalars": {"type": ["null", "boolean", "string"], "maxLength": 0},
    "flags and lists": {"anyOf": [{"type": "boolean"}, _unique({"type": "boolean"})]},
    "integers": {"type": "integer"},
    "numbers": {"type": "number"},
    "long pattern": {"type": "string", "pattern": "^.x", "minLength": 2, "maxLength": 4000},
    "anything": True,
}


@pytest.mark.parametrize("integers", ["plain", "any"])
@pytest.mark.parametrize("name", ITEMS)
def test_random_texts_never_get_stuck_and_never_repeat(name: str, integers: Any) -> None:
    schema = _unique(ITEMS[name], minItems=2)
    grammar = COMPILER.compile(JsonSchema(schema, whitespace="none", integers=integers))
    rng = random.Random(name)
    row = BYTES.empty_mask()
    for _ in range(6):
        matcher, text = grammar.matcher(), b""
        for step in range(300):
            matcher.fill_mask(row)
            bits = np.unpackbits(row.view(np.uint8), bitorder="little")[:257]
            allowed = np.flatnonzero(bits).tolist()
            assert allowed, text
            if 256 in allowed and rng.random() < 0.5:
                break
            likely = [b for b in allowed if b in set(b'"],:019ab.e') or (step > 60 and b == 0x7D)]
            token = rng.choice(likely if likely and rng.random() < 0.8 else allowed)
            if token == 256:
                break
            assert matcher.accept(token)
            text += bytes((token,))
        if matcher.is_accepting:
            found = [canonical(v) for v in json.loads(text, parse_float=Decimal)]
            assert len(set(found)) == len(found) >= 2, text


@pytest.mark.parametrize(
    ("name", "number"), [("few integers", 5), ("few multiples", 3), ("scalars", 4),
                         ("short strings", 5), ("two letters", 7), ("listed", 11),
                         ("flags and lists", 2 + 5)],
)  # fmt: skip
def test_an_array_ends_when_its_values_do(name: str, number: int) -> None:
    """A random text with all the values there are must close, and one with fewer may go on."""
    schema = _unique(ITEMS[name], minItems=number)
    grammar = COMPILER.compile(JsonSchema(schema, whitespace="none", integers="plain"))
    rng = random.Random(number)
    row = BYTES.empty_mask()
    for _ in range(4):
        matcher, text = grammar.matcher(), b""
        for _ in range(2000):
            matcher.fill_mask(row)
            bits = np.unpackbits(row.view(np.uint8), bitorder="little")[:257]
            allowed = np.flatnonzero(bits).tolist()
            assert allowed, text
            if allowed == [256]:
                break
            # Zeros and decimals may go on for ever.
            likely = [b for b in allowed if b in set(b'],"')]
            token = rng.choice(likely if likely and rng.random() < 0.5 else allowed)
            assert matcher.accept(token)
            text += bytes((token,))
        assert len(json.loads(text)) == number


@pytest.mark.parametrize(
    ("items", "text", "accepted"),
    [
        ({"type": "number"}, "[1,10e-1]", False),
        ({"type": "number"}, "[1,1.0]", False),
        ({"type": "number"}, "[1.5,15e-1,2]", False),
        ({"type": "number"}, "[0,-0]", False),
        ({"type": "number"}, "[1,1.01,11,0.1,1e1]", True),
        ({"type": "integer"}, "[1,2,1.0]", False),
        ({"type": "string"}, '["a","\\u0061"]', False),
        ({"type": "string"}, '["\\u0061","a"]', False),
        ({"type": "string"}, '["é","\\u00E9"]', False),
        ({"type": "string"}, '["\\\\","\\/","/"]', False),
        ({"type": "string"}, '["","a","aa","ab"]', True),
        ({"type": "string", "maxLength": 2}, '["ab","a","b","ba","ab"]', False),
        (True, '[1,"1",[1],[1.0]]', False),
        (True, '[{"a":1,"b":2},{"b":2,"a":1.0}]', False),
        (True, '[{"a":1,"b":2},{"b":2,"a":1.5},null,false,0,[0],[[0]]]', True),
        (_unique(True), "[[1,2],[2,1],[1]]", True),
        (_unique(True), "[[1,2],[1.0,2]]", False),
        (_unique(True), "[[1,1.0]]", False),
    ],
)
def test_equal_as_json_schema_says(items: Any, text: str, accepted: bool) -> None:
    grammar = COMPILER.compile(JsonSchema(_unique(items), integers="any"))
    assert bool(grammar.match(text)) == accepted


def test_states_grow_with_the_text_alone() -> None:
    """Each item adds states for its own text, however many there are before."""
    schema = _unique({"type": "string", "maxLength": 40})
    grammar = GrammarCompiler(BYTES).compile(JsonSchema(schema, whitespace="none"))
    matcher, row = grammar.matcher(), BYTES.empty_mask()
    assert matcher.accept_bytes(b"[")
    counts = []
    for i in range(60):
        for byte in json.dumps(f"word {i:03}").encode():
            matcher.fill_mask(row)
            assert matcher.accept(byte)
        assert matcher.accept_bytes(b",")
        counts.append(grammar.num_states)
    assert counts[-1] - counts[39] <= 2 * (counts[39] - counts[19])
    assert counts[-1] < 10_000

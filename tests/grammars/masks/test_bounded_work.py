"""What a mask may cost: few tokens are tried one by one, and few texts are asked for."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from ramet.grammars import JsonSchema, Vocabulary, compile_constraint

_WORDS = [f"{a}{b}{c}" for a in "abcdefgh" for b in "aeiou" for c in "lmnrst"]
_TOKENS = [
    *(bytes((i,)) for i in range(256)),
    *(f"{i:03}".encode() for i in range(1000)),
    *(w.encode() for w in _WORDS),
    *(f" {w}".encode() for w in _WORDS),
    *(f"{w}{end}".encode() for w in _WORDS[:60] for end in ('"', '",', '"]')),
    *(s.encode() for s in ("1,", "0]", "},", "}]", '":', '","', '",', "],", ",[", '{"', " {")),
]  # fmt: skip
VOCAB = Vocabulary.from_tokens([None, *dict.fromkeys(_TOKENS)], {0})
_MOST_TRIED, _MOST_ASKED = 30, 150

_INTEGER = {"type": "integer"}
_ID = {"properties": {"id": _INTEGER}, "required": ["id"], "additionalProperties": False}


def _unique(items: Any, **more: Any) -> dict[str, Any]:
    return {"type": "array", "uniqueItems": True, "items": items, **more}


CASES: dict[str, tuple[dict[str, Any], Any]] = {
    "set[int]": (_unique(_INTEGER), [4821, 99120, 17, 23, 5, 882, 91, 1000000]),
    "bounded": (_unique({**_INTEGER, "minimum": 1, "maximum": 45}), [3, 17, 22, 41, 9]),
    "float": (_unique({"type": "number"}), [1.5, 2.25, 17.0, 3.125, 4]),
    "int or str": (_unique({"type": ["integer", "string"]}), [12, "bal", 345, "bat", 6]),
    "enum": (_unique({"enum": list(range(1, 300))}), [3, 17, 222, 41, 9, 38]),
    "strings": (_unique({"type": "string"}), ["bal", "cal", "cal dam"]),
    "bounded strings": (_unique({"type": "string", "maxLength": 12}), ["bal", "cal", "cal dam"]),
    "objects": (_unique({"type": "object", **_ID}), [{"id": 12}, {"id": 345}, {"id": 7}]),
    "arrays": (_unique({"type": "array", "items": _INTEGER}), [[1, 2], [33], [5, 666], []]),
    "nested": (_unique(_unique(_INTEGER)), [[1, 2], [33], [5, 666], []]),
    "anything": ({"type": "array", "uniqueItems": True}, [1, "bal", 2.5, {"cal": 1}, [1]]),
}


@pytest.mark.parametrize("name", CASES)
def test_few_tokens_are_tried_and_few_texts_asked(name: str) -> None:
    schema, value = CASES[name]
    constraint = JsonSchema(schema, whitespace="none", integers="plain")
    grammar = compile_constraint(constraint, VOCAB)
    matcher, row = grammar.matcher(), VOCAB.empty_mask()
    text = json.dumps(value, separators=(",", ":")).encode()
    for at in range(len(text)):
        tried, asked = grammar.masks.num_tokens_tried, grammar.num_texts_requested
        matcher.fill_mask(row)
        assert grammar.masks.num_tokens_tried - tried <= _MOST_TRIED, text[:at]
        assert grammar.num_texts_requested - asked <= _MOST_ASKED, text[:at]
        if at % 7 == 3:
            _check(matcher, row)
        assert matcher.accept_bytes(text[at : at + 1])
    assert matcher.is_accepting


def _check(matcher: Any, row: Any) -> None:
    """The mask allows of every third token exactly those that the matcher takes."""
    bits = np.unpackbits(row.view(np.uint8), bitorder="little")
    for token in range(1, VOCAB.size, 3):
        fork = matcher.fork() if bits[token] else matcher
        taken = fork.accept(token)
        if taken and not bits[token]:
            fork.rollback(1)
        assert taken == bool(bits[token]), VOCAB.tokens[token]

"""Limits on states: reached when compiling or by one text's own need, never by a neighbour's."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ramet.grammars import (
    CompileLimits,
    Ebnf,
    GrammarCompiler,
    GrammarTooComplexError,
    JsonSchema,
    Matcher,
    Vocabulary,
)

BYTES = Vocabulary.from_tokens([bytes((i,)) for i in range(256)] + [None], {256})
LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = Vocabulary.from_tokens(
    [*(c.encode() for c in LETTERS), *(f"{a}{b}{c}".encode() for a in LETTERS for b in LETTERS
                                       for c in LETTERS[::2]), None], {26 + 26 * 26 * 13}
)  # fmt: skip
UNIQUE = JsonSchema(
    {"type": "array", "uniqueItems": True, "items": {"type": "string", "maxLength": 40}},
    whitespace="none",
)
NAMES = [f"p{i}" for i in range(20)]
INNOCENT = JsonSchema(
    {
        "type": "object",
        "properties": {
            n: {"type": "string", "pattern": f"^[a-f]{{{i}}}$"} for i, n in enumerate(NAMES)
        },
        "required": NAMES, "additionalProperties": False,
    },
    whitespace="none",
)  # fmt: skip


def _walk(matcher: Matcher, text: bytes) -> None:
    row = BYTES.empty_mask()
    for byte in text:
        matcher.fill_mask(row)
        assert row[byte >> 5] >> (byte & 31) & 1
        assert matcher.accept(byte)


def test_a_long_text_gives_up_the_states_of_its_masks() -> None:
    compiler = GrammarCompiler(BYTES, CompileLimits(max_states=6000))
    matcher = compiler.compile(UNIQUE).matcher()
    text = json.dumps([f"word {i}" for i in range(250)], separators=(",", ":")).encode()
    _walk(matcher, text)
    assert matcher.is_accepting
    assert matcher.text == text
    # It can be taken back across the place where the tables were left.
    matcher.rollback(len(text) - 10)
    assert matcher.text == text[:10]
    _walk(matcher, text[10:200])
    other = matcher.fork()
    _walk(other, text[200:])
    assert other.is_accepting


def test_a_neighbour_with_many_states_ends_no_other_text() -> None:
    compiler = GrammarCompiler(BYTES, CompileLimits(max_states=6000))
    innocent = compiler.compile(INNOCENT)
    bomb = compiler.compile(UNIQUE)
    assert innocent.context_independent is bomb.context_independent
    matcher = innocent.matcher()
    items = [f"word {i}" for i in range(250)]
    _walk(bomb.matcher(), json.dumps(items, separators=(",", ":")).encode())
    value = {n: ("abcdef" * 4)[:i] for i, n in enumerate(NAMES)}
    _walk(matcher, json.dumps(value, separators=(",", ":")).encode())
    assert matcher.is_accepting


def test_masks_are_the_same_after_leaving_the_tables() -> None:
    limits = CompileLimits(max_states=6000)
    crowded = GrammarCompiler(BYTES, limits).compile(UNIQUE).matcher()
    plain = GrammarCompiler(BYTES).compile(UNIQUE).matcher()
    rows = BYTES.empty_mask(), BYTES.empty_mask()
    for byte in json.dumps([f"w{i}" for i in range(200)], separators=(",", ":")).encode():
        crowded.fill_mask(rows[0])
        plain.fill_mask(rows[1])
        assert np.array_equal(*rows)
        assert crowded.accept(byte)
        assert plain.accept(byte)


def test_a_grammar_of_which_no_mask_can_be_made_is_refused_when_compiled() -> None:
    palindromes = " | ".join(f'"{c}" root "{c}"' for c in LETTERS)
    with pytest.raises(GrammarTooComplexError):
        GrammarCompiler(WORDS, CompileLimits(max_states=40_000)).compile(
            Ebnf(f'root ::= {palindromes} | ""')
        )

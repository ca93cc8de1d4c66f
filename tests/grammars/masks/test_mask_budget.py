"""Masks within a budget of time, and those made in the background: as any other, or not at all."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from ramet.grammars import Choice, Ebnf, JsonSchema, Regex, compile_constraint

CONSTRAINTS = [
    Ebnf('root ::= (word " ")* word\nword ::= [a-z]{1,9} | "(" root ")" | "x" word "y"'),
    Regex("(ab|c[a-z]{2}){3,9}"),
    Choice(("abc", "abd", "b")),
    JsonSchema({"type": "array", "uniqueItems": True, "items": {"type": ["integer", "string"]}}),
    JsonSchema({"type": "array", "contains": {"const": 7}, "items": {"type": "integer"}}),
]


@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=lambda c: type(c).__name__)
def test_masks_in_the_background_are_the_same(constraint, vocab) -> None:  # type: ignore[no-untyped-def]
    plain = compile_constraint(constraint, vocab).matcher()
    grammar = compile_constraint(constraint, vocab)
    other = grammar.matcher()
    rows = np.zeros((2, vocab.num_words), np.int32)
    rng = np.random.default_rng(5)
    for _ in range(12):
        plain.fill_mask(rows[0])
        rows[1] = -1
        is_there = other.try_mask(rows[1], 0.0)  # mostly too short
        if not is_there:
            thread = threading.Thread(target=other.fill_mask_in_background, args=(rows[1],))
            thread.start()
            while thread.is_alive():
                # Others of the grammar go on.
                grammar.matcher().fill_mask(np.zeros(vocab.num_words, np.int32))
            thread.join()
        assert np.array_equal(rows[0], rows[1])
        allowed = np.flatnonzero(np.unpackbits(rows[0].view(np.uint8), bitorder="little"))
        token = int(rng.choice(allowed))
        assert plain.accept(token)
        assert other.accept(token)
        if plain.is_finished:
            break


def test_a_mask_that_is_not_there_in_time_changes_nothing(vocab) -> None:  # type: ignore[no-untyped-def]
    grammar = compile_constraint(CONSTRAINTS[0], vocab)
    matcher = grammar.matcher()
    assert matcher.accept_bytes(b"ab (")
    row = np.zeros(vocab.num_words, np.int32)
    assert not matcher.try_mask(row, -1.0)
    assert matcher.text == b"ab ("
    assert matcher.try_mask(row, 60.0)
    expected = np.zeros(vocab.num_words, np.int32)
    matcher.fill_mask(expected)
    assert np.array_equal(row, expected)

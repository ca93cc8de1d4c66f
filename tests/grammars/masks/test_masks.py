"""A mask is exactly the tokens that can be accepted; matchers go back and fork."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ramet.grammars import (
    Choice,
    JsonObject,
    JsonSchema,
    Matcher,
    Regex,
    Vocabulary,
    compile_constraint,
)

CONSTRAINTS = [
    Regex("(ab|abc)*[0-9]{1,3}é?"),
    Regex(r"\w+@\w+\.(com|org)"),
    Regex('[^"]*"[^"]*"'),
    Choice(("abc", "abd", "日本", "")),
    JsonObject(),
    JsonObject(whitespace="none"),
    JsonObject(whitespace="pretty"),
    JsonSchema({"type": "string", "maxLength": 3}),
    JsonSchema({"type": "string", "minLength": 2, "maxLength": 12}),
    JsonSchema({"type": "string", "minLength": 20, "maxLength": 400}),
    JsonSchema({"type": "object", "propertyNames": {"minLength": 1, "maxLength": 30}}),
    JsonSchema({"type": "string", "pattern": "^[a-z]{2,40}$"}),
    JsonSchema({"type": "string", "pattern": "^[^x]*$", "minLength": 2, "maxLength": 5000}),
    JsonSchema({"type": "string", "format": "email"}),
    JsonSchema({"enum": ["foo", "bar", "é\n", 12, 0.5, None, {"a": [1]}, []]}),
    JsonSchema({"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
    JsonSchema(
        {"type": "array", "items": {"enum": ["foo", "bar", 1]}, "uniqueItems": True, "minItems": 2}
    ),
    JsonSchema(
        {
            "type": "object",
            "properties": {"name": {"type": "string"}, "id": {"type": "integer"}},
            "required": ["id"],
        }
    ),
    JsonSchema(
        {
            "type": "object",
            "properties": {"name": {"type": "string"}, "id": {"type": "integer"}},
            "required": ["id"],
            "additionalProperties": False,
        },
        any_order=False,
    ),
    JsonSchema(
        {
            "oneOf": [
                {
                    "properties": {"tag": {"const": "foo"}, "v": {"type": "number"}},
                    "required": ["tag"],
                },
                {
                    "properties": {"tag": {"const": "bar"}, "v": {"type": "string"}},
                    "required": ["tag"],
                },
            ],
            "type": "object",
        }
    ),
    JsonSchema(
        {"patternProperties": {"^a": {"type": "integer"}}, "type": "object", "minProperties": 1}
    ),
    JsonSchema({"type": "object", "propertyNames": {"maxLength": 2}, "maxProperties": 2}),
    JsonSchema({"type": "array", "contains": {"const": 1}, "maxItems": 3}),
]


def walk(
    matcher: Matcher, vocab: Vocabulary, rng: random.Random, allowed, num_tokens: int
) -> list[int]:  # type: ignore[no-untyped-def]
    """Accept random allowed tokens."""
    taken = []
    for _ in range(num_tokens):
        choice = sorted(allowed(matcher, vocab) - {0})
        if not choice:
            break
        token_id = rng.choice(choice)
        assert matcher.accept(token_id)
        taken.append(token_id)
    return taken


@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=lambda c: repr(c)[:60])
def test_mask_is_what_accept_takes(constraint, vocab, allowed_tokens) -> None:  # type: ignore[no-untyped-def]
    grammar = compile_constraint(constraint, vocab)
    rng = random.Random(5)
    for _ in range(4):
        matcher = grammar.matcher()
        for _ in range(9):
            allowed = allowed_tokens(matcher, vocab)
            taken = {t for t in range(vocab.size) if matcher.fork().accept(t)}
            assert allowed == taken, matcher.text
            choice = sorted(allowed - {0})
            if not choice:
                break
            assert matcher.accept(rng.choice(choice))


@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=lambda c: repr(c)[:60])
def test_no_allowed_token_is_a_dead_end(constraint, vocab, allowed_tokens) -> None:  # type: ignore[no-untyped-def]
    grammar = compile_constraint(constraint, vocab)
    rng = random.Random(7)
    for _ in range(12):
        matcher = grammar.matcher()
        walk(matcher, vocab, rng, allowed_tokens, rng.randrange(12))
        assert allowed_tokens(matcher, vocab), f"stuck after {matcher.text!r}"


@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=lambda c: repr(c)[:60])
def test_rollback_and_fork_are_as_if_never_taken(constraint, vocab, allowed_tokens) -> None:  # type: ignore[no-untyped-def]
    grammar = compile_constraint(constraint, vocab)
    rng = random.Random(11)
    matcher = grammar.matcher()
    kept = walk(matcher, vocab, rng, allowed_tokens, 4)
    fork = matcher.fork()
    before = allowed_tokens(matcher, vocab)
    more = walk(matcher, vocab, rng, allowed_tokens, 5)
    matcher.rollback(len(more))
    assert allowed_tokens(matcher, vocab) == before
    assert matcher.is_accepting == fork.is_accepting
    # The other way of the fork doesn't touch the first.
    walk(fork, vocab, rng, allowed_tokens, 5)
    assert allowed_tokens(matcher, vocab) == before
    fresh = grammar.matcher()
    for token_id in kept:
        assert fresh.accept(token_id)
    assert allowed_tokens(fresh, vocab) == before


@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=lambda c: repr(c)[:60])
def test_forced_bytes_are_the_only_way_on(constraint, vocab, allowed_tokens) -> None:  # type: ignore[no-untyped-def]
    grammar = compile_constraint(constraint, vocab)
    rng = random.Random(13)
    for num_tokens in range(6):
        matcher = grammar.matcher()
        walk(matcher, vocab, rng, allowed_tokens, num_tokens)
        forced = matcher.forced_bytes()
        probe = matcher.fork()
        for byte in forced:
            assert not probe.is_accepting
            assert [b for b in range(256) if probe.fork().accept_bytes(bytes((b,)))] == [byte]
            assert probe.accept_bytes(bytes((byte,)))
        ways = [b for b in range(256) if probe.fork().accept_bytes(bytes((b,)))]
        assert probe.is_accepting or len(ways) != 1


def test_the_end_token_ends_it(vocab: Vocabulary) -> None:
    matcher = compile_constraint(Choice(("ab",)), vocab).matcher()
    assert not matcher.accept(0)
    assert matcher.accept_bytes(b"ab")
    assert matcher.is_accepting
    assert not matcher.is_finished
    assert matcher.accept(0)
    assert matcher.is_finished
    row = np.full(vocab.num_words + 2, -1, np.int32)
    matcher.fill_mask(row)
    assert not row.any()
    assert not matcher.accept(0)
    matcher.rollback(1)
    assert not matcher.is_finished
    assert matcher.is_accepting


def test_refused_token_leaves_the_matcher_as_it_was(vocab: Vocabulary) -> None:
    matcher = compile_constraint(Choice(("ab",)), vocab).matcher()
    assert not matcher.accept(2 + ord("x"))
    assert not matcher.accept(1)
    assert not matcher.accept(-1)
    assert not matcher.accept(10**6)
    assert matcher.accept(2 + ord("a"))
    with pytest.raises(ValueError, match="take back"):
        matcher.rollback(2)


def test_match_names_the_first_wrong_byte(vocab: Vocabulary) -> None:
    grammar = compile_constraint(JsonSchema({"type": "array", "items": {"type": "integer"}}), vocab)
    assert grammar.match("[1, 2]").accepted
    wrong = grammar.match("[1, x]")
    assert (wrong.accepted, wrong.offset) == (False, 4)
    assert "'0' to '9'" in wrong.expected
    short = grammar.match("[1")
    assert (short.accepted, short.offset) == (False, 2)
    assert "']'" in short.expected


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.binary(max_size=6), max_size=40), st.integers(0, 10**6))
def test_any_vocabulary_masks_alike(vocab_texts: list[bytes], seed: int) -> None:
    tokens: list[bytes | None] = [None, *(t or None for t in vocab_texts)]
    vocab = Vocabulary.from_tokens(tokens, {0})
    grammar = compile_constraint(JsonObject(), vocab)
    rng = random.Random(seed)
    matcher = grammar.matcher()
    assert matcher.accept_bytes(rng.choice([b"", b"{", b'{"', b'{"\\', b'{"a":"\xc3', b'{"a": 1']))
    row = np.zeros(vocab.num_words, np.int32)
    matcher.fill_mask(row)
    for token_id in range(vocab.size):
        assert bool(row[token_id >> 5] >> (token_id & 31) & 1) == matcher.fork().accept(token_id)

"""Objects with finitely many names have no dead ends, even when few names are left."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.grammars import ConstraintError, JsonSchema, Matcher, Vocabulary, compile_constraint

NAMES = ["a", "b", "ab", "é", "a/", "é1", 'q"', "aé", "x", "😀"]
PATTERNS = ["^.$", "^..?$", "^a", "b$", "^[ab]*$", "^[^x]$", "é", "^(a|é)"]

names = st.lists(st.sampled_from(NAMES), max_size=3, unique=True)
some = st.sampled_from([True, False, {"const": 1}, {"type": "null"}])
objects = st.fixed_dictionaries(
    {"type": st.just("object"), "additionalProperties": st.sampled_from([False, {"const": 1}])},
    optional={
        "properties": st.dictionaries(st.sampled_from(NAMES), some, max_size=3),
        "patternProperties": st.dictionaries(st.sampled_from(PATTERNS), some, max_size=2),
        "propertyNames": st.sampled_from(
            [{"maxLength": 1}, {"maxLength": 2}, {"pattern": "^.$"}, {"not": {"enum": ["a", "é"]}}]
        ),
        "required": names,
        "maxProperties": st.integers(0, 4),
        "dependentRequired": st.dictionaries(st.sampled_from(NAMES), names, max_size=1),
    },
)
Allowed = Callable[[Matcher, Vocabulary], set[int]]


def has_dead_end(matcher: Matcher, vocab: Vocabulary, allowed: Allowed, ids: list[int]) -> bool:
    """Whether a token that is refused is in the mask, or what follows one is nothing."""
    mask = allowed(matcher, vocab)
    for token in ids:
        after = matcher.fork()
        if after.accept(token) != (token in mask) or (token in mask and not allowed(after, vocab)):
            return True
    return False


@settings(max_examples=60, deadline=None)
@given(objects, st.integers(0, 1 << 30))
def test_no_dead_ends(
    vocab: Vocabulary, allowed_tokens: Allowed, schema: dict[str, Any], seed: int
) -> None:
    try:
        grammar = compile_constraint(JsonSchema(schema, whitespace="none"), vocab)
    except ConstraintError:
        return
    rng = random.Random(seed)
    matcher = grammar.matcher()
    for _ in range(25):
        mask = sorted(allowed_tokens(matcher, vocab) - set(vocab.eos_ids))
        ids = rng.sample(range(2, vocab.size), 30) + rng.sample(mask, min(15, len(mask)))
        assert not has_dead_end(matcher, vocab, allowed_tokens, ids), matcher.text
        if not mask:
            break
        short = [i for i in mask if len(vocab.tokens[i] or b"") < 3]
        assert matcher.accept(rng.choice(short or mask))


@pytest.mark.parametrize(
    ("keywords", "text"),
    [
        ({"propertyNames": {"maxLength": 1}}, '{"é":1,"'),
        (
            {
                "patternProperties": {"^.$": {}},
                "additionalProperties": False,
                "dependentRequired": {"x": ["ab"]},
            },
            '{"a":1,"',
        ),
        (
            {
                "properties": {"é1": {}},
                "patternProperties": {"^[ab]*$": {}, "é": {}},
                "additionalProperties": False,
                "propertyNames": {"maxLength": 2},
            },
            '{"]é":1,"xé":1,"',
        ),
    ],
)
def test_those_that_were_met(
    vocab: Vocabulary, allowed_tokens: Allowed, keywords: dict[str, Any], text: str
) -> None:
    schema = JsonSchema({"type": "object", **keywords}, whitespace="none")
    matcher = compile_constraint(schema, vocab).matcher()
    assert matcher.accept_bytes(text.encode())
    assert not has_dead_end(matcher, vocab, allowed_tokens, list(range(2, vocab.size)))
    (name,) = list(json.loads(text.rstrip('"').rstrip(",") + "}"))[:1]
    assert not matcher.accept_bytes(f'{name}"'.encode())

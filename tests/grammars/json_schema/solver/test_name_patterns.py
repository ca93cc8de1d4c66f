"""Promised: properties are exact under any number of patterns that overlap."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from ramet.grammars import (
    EmptyConstraintError,
    GrammarCompiler,
    GrammarTooComplexError,
    JsonSchema,
    Vocabulary,
)
from ramet.grammars.json_schema.solver import name_patterns

TOKENS = [bytes((i,)) for i in range(256)] + [b'":', b'a":', b"ab", b'b": ', b'": 1']
VOCAB = Vocabulary.from_tokens([*TOKENS, None], {len(TOKENS)})
nodes = st.sampled_from(
    [{"minimum": 2}, {"multipleOf": 2}, {"type": "integer"}, True, {"maximum": 9}]
)
schemas = st.fixed_dictionaries(
    {
        "patternProperties": st.dictionaries(
            st.sampled_from(["a", "b", "^a", "c$", "é", "^.b", "aa", "^..$"]),
            nodes,
            min_size=2,
            max_size=6,
        )
    },
    optional={
        "additionalProperties": st.sampled_from([False, {"type": "integer"}, {"minimum": 1}]),
        "properties": st.dictionaries(st.sampled_from(["a", "abc"]), nodes, max_size=2),
        "required": st.just(["a"]),
        "maxProperties": st.just(2),
    },
)
instances = st.dictionaries(
    st.text("abcé", max_size=3), st.sampled_from([0, 1, 2, 3, 4, 10, 2.5, "x"]), max_size=3
)


@pytest.fixture(scope="module")
def wide() -> Iterator[GrammarCompiler]:
    """A compiler that gives no set of patterns a class of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(name_patterns, "_MAX_CLASSES", 0)
        yield GrammarCompiler(VOCAB)


@given(schemas, st.lists(instances, min_size=1, max_size=8), st.randoms(use_true_random=False))
@settings(max_examples=100)
def test_one_class_for_all(
    wide: GrammarCompiler, schema: dict[str, Any], values: list[Any], rng: random.Random
) -> None:
    schema = {"type": "object", **schema}
    validator = Draft202012Validator(schema)
    try:
        grammar = wide.compile(JsonSchema(schema, whitespace="compact"))
    except EmptyConstraintError:
        assert not any(validator.is_valid(value) for value in values)
        return
    for value in values:
        text = json.dumps(value, ensure_ascii=rng.random() < 0.5, separators=(", ", ": "))
        assert grammar.match(text).accepted == validator.is_valid(value), value
    # Masks allow what goes on, and lead to no dead end.
    matcher = grammar.matcher()
    row = np.zeros(VOCAB.num_words, np.int32)
    text_ = b""
    for _ in range(25):
        matcher.fill_mask(row)
        allowed = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist()
        assert allowed
        likely = [t for t in allowed if t < len(TOKENS) and set(TOKENS[t]) <= set(b'{}"abc: ,1234')]
        token = rng.choice(likely or allowed)
        if token == len(TOKENS):
            break
        assert matcher.accept(token)
        text_ += TOKENS[token]
    text_ += matcher.shortest_completion()
    assert validator.is_valid(json.loads(text_)), text_


def test_seventy_overlapping_patterns() -> None:
    patterns = {f"x{i}": {"type": "integer", "minimum": i} for i in range(70)}
    grammar = GrammarCompiler(VOCAB).compile(
        JsonSchema({"type": "object", "patternProperties": patterns})
    )
    for text in ('{"x1":5,"x2x30":30,"q":"a"}', '{"x9":9,"y":null}', "{}"):
        assert grammar.match(text).accepted
    for text in ('{"x2x30":29}', '{"x69":68}', '{"ax1":"a"}', '{"x1":5,"x1":5}'):
        assert not grammar.match(text).accepted


def test_hundred_patterns_that_exclude_each_other() -> None:
    patterns = {f"^p{i}_": {"const": i} for i in range(100)}
    schema = {"type": "object", "patternProperties": patterns, "additionalProperties": False}
    grammar = GrammarCompiler(VOCAB).compile(JsonSchema(schema))
    assert grammar.match('{"p7_a": 7, "p99_": 99}').accepted
    for text in ('{"p7_a": 8}', '{"q": 1}', '{"p100_": 100}'):
        assert not grammar.match(text).accepted


def test_what_can_neither_agree_nor_be_distinguished_is_refused() -> None:
    patterns = {f"x{i}": {"const": i} for i in range(70)}
    with pytest.raises(GrammarTooComplexError, match="overlap"):
        GrammarCompiler(VOCAB).compile(
            JsonSchema({"type": "object", "patternProperties": patterns})
        )

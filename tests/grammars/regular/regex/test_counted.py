"""Promised: patterns that count characters are exact, alone and beside other conditions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.grammars import EmptyConstraintError, GrammarCompiler, JsonSchema, Vocabulary
from ramet.grammars.regular.regex import counted
from ramet.grammars.regular.regex.parser import parse

BYTES = Vocabulary.from_tokens([bytes((i,)) for i in range(256)] + [None], {256})


@pytest.fixture(scope="module")
def compiler() -> Iterator[GrammarCompiler]:
    """Takes every counted repetition for a long one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counted, "_LONG", 0)
        yield GrammarCompiler(BYTES)


units = st.sampled_from(["a", "[ab]", "é", "(?:ab|bé)", "[^a]", "(?:a|b|😀)"])
fixed = st.sampled_from(["", "a", "b[ab]", "(?:aa|éb)", "a{2}"])
bounds = st.tuples(st.integers(0, 4), st.integers(0, 4)).map(lambda b: f"{{{b[0]},{b[0] + b[1]}}}")
patterns = st.builds(
    lambda a, unit, times, b: f"^{a}{unit}{times}{b}$",
    fixed,
    units,
    bounds | st.just("{2,}"),
    fixed,
)
texts = st.text("abé😀", max_size=8)


@given(
    patterns,
    st.fixed_dictionaries(
        {}, optional={"minLength": st.integers(0, 5), "maxLength": st.integers(0, 6)}
    ),
    st.booleans(),
    st.lists(texts, min_size=1, max_size=10),
)
@settings(max_examples=150)
def test_values(
    compiler: GrammarCompiler,
    pattern: str,
    lengths: dict[str, int],
    negated: bool,
    values: list[str],
) -> None:
    schema: dict[str, Any] = {"type": "string", **lengths}
    schema |= {"not": {"pattern": pattern}} if negated else {"pattern": pattern}
    low, high = lengths.get("minLength", 0), lengths.get("maxLength", 99)
    try:
        grammar = compiler.compile(JsonSchema(schema))
    except EmptyConstraintError:
        grammar = None
    for value in values:
        matches = re.search(pattern, value) is not None
        expected = matches != negated and low <= len(value) <= high
        found = grammar is not None and grammar.match(json.dumps(value)).accepted
        assert found == expected, value


@given(patterns, st.lists(texts, min_size=1, max_size=6))
@settings(max_examples=60)
def test_names(compiler: GrammarCompiler, pattern: str, names: list[str]) -> None:
    schema = {
        "type": "object",
        "patternProperties": {pattern: {"type": "integer"}},
        "additionalProperties": {"type": "string"},
    }
    grammar = compiler.compile(JsonSchema(schema))
    for name in names:
        matches = re.search(pattern, name) is not None
        assert grammar.match(json.dumps({name: 1})).accepted == matches
        assert grammar.match(json.dumps({name: "x"})).accepted != matches


def test_thousand_characters_of_three_classes() -> None:
    schema = {"type": "string", "pattern": r"^(\p{L}|\p{N}|\p{P}){0,1000}$"}
    grammar = GrammarCompiler(BYTES).compile(JsonSchema(schema))
    assert grammar.match(json.dumps("é1." * 333 + "x")).accepted
    assert not grammar.match(json.dumps("é1." * 333 + "xy")).accepted
    assert not grammar.match(json.dumps("a b")).accepted


def test_only_what_counts_is_taken_apart() -> None:
    for pattern in (
        "a{0,500}",
        "^(?:a|bc){0,500}$",
        "^a{0,200}b{0,200}$",
        "^a*b{200}$",
    ):
        assert counted.without_bounds(parse(pattern, "ecma")) is None

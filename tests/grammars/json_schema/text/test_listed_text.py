"""Promised: enums and choices of thousands of texts are exact, in any spelling, and completable."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.grammars import Choice, GrammarCompiler, JsonSchema, Vocabulary
from ramet.grammars.json_schema.contexts import value_parts

BYTES = Vocabulary.from_tokens([bytes((i,)) for i in range(256)] + [None], {256})
texts = st.text(st.sampled_from('ab"\\/\n\x01é日😀'), max_size=5)


@pytest.fixture(scope="module")
def compiler() -> Iterator[GrammarCompiler]:
    """Takes even short lists for long ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(value_parts, "_MAX_TREE_BYTES", -1)
        patch.setattr("ramet.grammars.compile._MAX_CHOICE_DFA", -1)
        yield GrammarCompiler(BYTES)


def spell(data: st.DataObject, text: str) -> str:
    """A string in JSON with some characters as escapes."""
    parts = []
    for character in text:
        plain = json.dumps(character, ensure_ascii=False)[1:-1]
        escaped = json.dumps(character)[1:-1]
        choices = [plain, escaped, escaped[:2] + escaped[2:].upper().replace("\\U", "\\u")]
        parts.append(data.draw(st.sampled_from(choices)))
    return f'"{"".join(parts)}"'


@given(st.data(), st.sets(texts, min_size=1, max_size=8), st.lists(texts, max_size=5))
@settings(max_examples=80)
def test_strings_of_an_enum(
    compiler: GrammarCompiler, data: st.DataObject, listed: set[str], others: list[str]
) -> None:
    grammar = compiler.compile(JsonSchema({"enum": sorted(listed)}))
    for text in [*listed, *others]:
        assert grammar.match(spell(data, text)).accepted == (text in listed)
        assert not grammar.match(json.dumps(text)[:-1]).accepted


@given(st.data(), st.sets(texts, min_size=1, max_size=6), st.sets(texts, min_size=1, max_size=6))
@settings(max_examples=40)
def test_strings_of_two_enums(
    compiler: GrammarCompiler, data: st.DataObject, left: set[str], right: set[str]
) -> None:
    schema = {
        "oneOf": [
            {"properties": {"k": {"enum": sorted(left)}, "v": {"const": 1}}},
            {"properties": {"k": {"enum": sorted(right)}, "v": {"const": 2}}},
        ],
        "required": ["k", "v"],
        "type": "object",
    }
    if left == right:
        return
    grammar = compiler.compile(JsonSchema(schema))
    for text in left | right:
        for number in (1, 2):
            value = f'{{"k": {spell(data, text)}, "v": {number}}}'
            expected = (text in left and number == 1) != (text in right and number == 2)
            assert grammar.match(value).accepted == expected


@given(st.sets(texts, min_size=1, max_size=8), st.lists(texts, max_size=5), st.data())
@settings(max_examples=60)
def test_choices(
    compiler: GrammarCompiler, listed: set[str], others: list[str], data: st.DataObject
) -> None:
    grammar = compiler.compile(Choice(tuple(sorted(listed))))
    for text in [*listed, *others]:
        assert grammar.match(text).accepted == (text in listed)
    chosen = data.draw(st.sampled_from(sorted(listed))).encode()
    begun = chosen[: data.draw(st.integers(0, len(chosen)))]
    matcher = grammar.matcher()
    for byte in begun:
        assert matcher.accept(byte)
    assert (begun + matcher.shortest_completion()).decode() in listed


def words(count: int) -> list[str]:
    return [f"{i * 7919 % 1_000_003:06d}-{'abcdefgh'[i % 8] * 20}-{i}" for i in range(count)]


def test_five_thousand_values() -> None:
    listed = words(5000)
    grammar = GrammarCompiler(BYTES).compile(JsonSchema({"enum": listed}))
    assert grammar.match(json.dumps(listed[4321])).accepted
    assert not grammar.match(json.dumps(listed[4321] + "x")).accepted
    matcher = grammar.matcher()
    for byte in f'"{listed[17][:9]}'.encode():
        assert matcher.accept(byte)
    assert json.loads(f'"{listed[17][:9]}' + matcher.shortest_completion().decode()) in listed


def test_twenty_thousand_choices() -> None:
    listed = words(20_000)
    grammar = GrammarCompiler(BYTES).compile(Choice(tuple(listed)))
    assert grammar.num_states < 5_000
    row = np.zeros(BYTES.num_words, np.int32)
    matcher = grammar.matcher()
    for byte in listed[-1].encode():
        matcher.fill_mask(row)
        assert matcher.accept(byte)
    assert matcher.is_accepting
    assert grammar.num_states < 10_000
    assert not grammar.match(listed[-1][:-1] + "x").accepted


def test_large_closed_object() -> None:
    listed = words(1200)
    schema = {
        "type": "object",
        "properties": {name: {"type": "integer"} for name in listed},
        "additionalProperties": False,
    }
    grammar = GrammarCompiler(BYTES).compile(JsonSchema(schema))
    assert grammar.match(json.dumps({listed[5]: 1, listed[999]: 2})).accepted
    assert not grammar.match(json.dumps({listed[5] + "x": 1})).accepted
    assert not grammar.match(f'{{"{listed[5]}": 1, "{listed[5]}": 2}}').accepted

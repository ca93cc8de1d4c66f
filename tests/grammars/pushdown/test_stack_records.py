"""What compiled code keeps of plain objects and arrays: live labels, names, equal positions."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.grammars import (
    AnyOf,
    GrammarCompiler,
    JsonObject,
    JsonSchema,
    Series,
    StructuralTag,
    Vocabulary,
    compile_constraint,
)
from ramet.grammars.pushdown.json_text import spellings
from ramet.grammars.pushdown.seen_keys import is_taken, read_name
from ramet.grammars.pushdown.stack_records import COUNT, OBJECT, SEEN, WHAT, find_live
from ramet.grammars.pushdown.state_table import StateTable

MANY = {
    "type": "object",
    "properties": {f"p{i}": {"type": "integer"} for i in range(150)},
    "required": ["p3", "p70", "p149"],
    "maxProperties": 5,
    "additionalProperties": False,
}


def live_by_hand(
    num_labels: int, first_name: int, required: set[int], possible: set[int],
    low: int, high: int, seen: set[int], count: int,
) -> set[int]:  # fmt: skip
    """As ``find_live``, from its definition."""
    missing = required - seen
    free = possible - seen
    if missing - free or (high >= 0 and count + len(missing) > high):
        return set()
    full = high >= 0 and count + len(missing) == high
    live = missing if full else free
    if not missing and count >= low:
        return {0, *live}
    endless = any(label < first_name for label in free)
    if not full and count + len(missing) < low and not endless and len(free) < low - count:
        return set()
    return live


@st.composite
def objects(draw: st.DrawFn):  # type: ignore[no-untyped-def]
    num_labels = draw(st.integers(2, 150))
    first_name = draw(st.integers(1, 3))
    labels = st.integers(1, num_labels - 1)
    names = st.sets(st.integers(first_name, max(first_name, num_labels - 1)), max_size=6)
    possible = draw(st.sets(labels, max_size=20)) | draw(names)
    low = draw(st.integers(0, 5))
    high = draw(st.sampled_from([-1, low, low + 2]))
    seen = draw(names)
    return (
        max(num_labels, first_name + 1), first_name, draw(names), possible, low, high, seen,
        len(seen) + draw(st.integers(0, 2)),
    )  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(objects())
def test_live_labels(case) -> None:  # type: ignore[no-untyped-def]
    num_labels, first_name, required, possible, low, high, seen, count = case
    state_table = StateTable(100)
    bits = [sum(1 << label for label in labels) for labels in (required, possible, seen)]
    num_words = (num_labels + 63) // 64
    plan = [
        OBJECT, num_words, first_name, low, high, state_table.bit_set(bits[0]),
        state_table.bit_set(bits[1]), 0, 0,
    ]  # fmt: skip
    frames = np.full(10 + 2 * num_words, -1, np.int64)
    frames[1 + WHAT], frames[1 + COUNT] = 0, count
    words = np.frombuffer(bits[2].to_bytes(8 * num_words, "little"), np.int64)
    frames[1 + SEEN : 1 + SEEN + num_words] = words
    find_live(frames, np.array(plan, np.int32), state_table.words, 1)
    at = 1 + SEEN + num_words
    assert frames[at] == num_words
    found = int.from_bytes(frames[at + 1 : at + 1 + num_words].tobytes(), "little")
    assert {i for i in range(num_labels) if found >> i & 1} == live_by_hand(*case)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(max_size=12), max_size=4), st.text(max_size=12), st.integers(0, 2**32))
def test_names_are_compared_by_what_they_spell(names: list[str], name: str, seed: int) -> None:
    rng = random.Random(seed)

    def spelled(text: str) -> np.ndarray:  # type: ignore[type-arg]
        body = b"".join(rng.choice(spellings(c)) for c in text)
        return np.frombuffer(bytearray(b' "' + body + b'": '), np.uint8)

    frames = np.zeros(1000, np.int64)
    last, free = 0, 1
    for text in names:
        data = spelled(text)
        frames[free] = last
        size = read_name(data, 0, len(data), frames, free)
        encoded = text.encode()
        assert frames[free + 1] == len(encoded)
        assert frames[free + 2 : free + size].tobytes()[: len(encoded)] == encoded
        last, free = free, free + size
    data = spelled(name)
    assert is_taken(data, 0, len(data) - 3, frames, last, free) == (name in names)


def test_no_name_comes_twice_however_it_is_spelled(vocab: Vocabulary) -> None:
    grammar = compile_constraint(JsonObject(), vocab)
    for name, other in (
        ("é", r"\u00e9"), ("é", r"\u00E9"), ("a/b", r"a\/b"), ("😀", r"\ud83d\ude00"), ("", ""),
        ("long name " * 9, "long name " * 9),
    ):  # fmt: skip
        assert not grammar.match(f'{{"{name}": 1, "{other}": 2}}')
        assert not grammar.match(f'{{"{other}": 1, "x": {{}}, "{name}": 2}}')
        assert grammar.match(f'{{"{name}": {{"{other}": 1}}, "{other}x": 2, "y{name}": 3}}')


def test_a_name_is_taken_in_the_mask_too(vocab: Vocabulary, allowed_tokens) -> None:  # type: ignore[no-untyped-def]
    matcher = compile_constraint(JsonObject(whitespace="none"), vocab).matcher()
    assert matcher.accept_bytes(b'{"foo":1,"tag":true,"fo')
    ids = {t: i for i, t in enumerate(vocab.tokens) if t is not None}
    allowed = allowed_tokens(matcher, vocab)
    assert ids[b'":'] in allowed  # "fo" is new.
    assert matcher.accept(ids[b"o"])
    allowed = allowed_tokens(matcher, vocab)
    assert not {ids[b'"'], ids[b'":'], ids[b'":1']} & allowed
    assert ids[b'x"'] in allowed
    assert matcher.accept(ids[b"o"])
    assert ids[b'":'] in allowed_tokens(matcher, vocab)


def test_more_names_than_fit_one_word(vocab: Vocabulary) -> None:
    grammar = compile_constraint(JsonSchema(MANY), vocab)
    assert grammar.match('{"p3": 1, "p149": 2, "p70": 3}')
    assert grammar.match('{"p149": 1, "p64": 2, "p128": 5, "p70": 3, "p3": 4}')
    assert not grammar.match('{"p3": 1, "p70": 3}')
    assert not grammar.match('{"p3": 1, "p149": 2, "p70": 3, "p149": 4}')
    # With room for the required ones alone, no others may come.
    assert not grammar.match('{"p0": 1, "p1": 2, "p2": 3, "p3": 4, "p70": 5}')
    matcher = grammar.matcher()
    assert matcher.accept_bytes(b'{"p0": 1, "p1": 2, "p3": 3, "p70"')
    assert matcher.accept_bytes(b": 4,")
    assert matcher.accept_bytes(b' "')
    assert matcher.forced_bytes() == b'p149"'


def test_arrays_are_counted(vocab: Vocabulary) -> None:
    schema = {
        "prefixItems": [{"type": "integer"}, {"type": "string"}, {"type": "null"}],
        "items": {"type": "boolean"}, "minItems": 2, "maxItems": 5, "type": "array",
    }  # fmt: skip
    grammar = compile_constraint(JsonSchema(schema), vocab)
    for good in ([1, "a"], [1, "a", None], [1, "a", None, True, False]):
        assert grammar.match(json.dumps(good)), good
    for bad in ([], [1], ["a", 1], [1, "a", None, 1], [1, "a", None, True, False, True]):
        assert not grammar.match(json.dumps(bad)), bad
    none = {"type": "array", "prefixItems": [{"type": "integer"}, False]}
    grammar = compile_constraint(JsonSchema(none), vocab)
    assert grammar.match("[1]")
    assert grammar.match("[]")
    assert not grammar.match("[1, 2]")
    grammar = compile_constraint(JsonSchema({"type": "array", "items": False}), vocab)
    assert grammar.match("[ ]")
    assert not grammar.match("[1]")


def test_readings_that_come_to_the_same_are_one(vocab: Vocabulary) -> None:
    """Two schemas at once are followed byte by byte, with positions that are compared."""
    small = {"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 3}
    tag = StructuralTag(Series((AnyOf((JsonSchema(small), JsonObject())),)))
    grammar = compile_constraint(tag, vocab)
    assert grammar.match('{"a": 1, "b": 2}')
    assert grammar.match('{"a": 1, "b": [2]}')
    assert not grammar.match('{"a": 1, "a": 2}')


@pytest.mark.parametrize("limit", [1 << 40, 0])
def test_sharing_changes_no_mask(limit, vocab, allowed_tokens, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("ramet.grammars.compile._MAX_SHARED_BYTES", limit)
    compiler = GrammarCompiler(vocab)
    rng = random.Random(3)
    constraints = [
        JsonObject(), JsonSchema(MANY), JsonSchema({"type": "string", "pattern": "^[^x/]*$"}),
        JsonSchema({"properties": {"name": {"type": "string", "maxLength": 4}, "id": {}}}),
        JsonSchema({"properties": {"id": {"type": "string", "maxLength": 4}, "name": False}}),
    ]  # fmt: skip
    pairs = [(compiler.compile(c), compile_constraint(c, vocab)) for c in constraints]
    for _ in range(30):
        for shared, alone in pairs:
            matchers = shared.matcher(), alone.matcher()
            for _ in range(12):
                allowed = [allowed_tokens(m, vocab) for m in matchers]
                assert allowed[0] == allowed[1], matchers[0].text
                choice = sorted(allowed[0] - {0})
                if not choice:
                    break
                token_id = rng.choice(choice)
                assert all(m.accept(token_id) for m in matchers)


def test_a_mask_stays_the_same_however_often_it_is_asked_for(vocab, allowed_tokens) -> None:  # type: ignore[no-untyped-def]
    schema = {"properties": {"name": {"type": "string", "maxLength": 9}, "id": {"type": "number"}}}
    matcher = compile_constraint(JsonSchema(schema), vocab).matcher()
    for token in ("{", '"', "name", '": "', "ab", '", ', '"', "id", '": ', "12", "0.5"):
        first = allowed_tokens(matcher, vocab)
        for _ in range(12):
            assert allowed_tokens(matcher, vocab) == first
        matcher.accept_bytes(token.encode())

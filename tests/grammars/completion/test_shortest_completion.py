"""``Matcher.shortest_completion``: valid from every position, and no shorter text is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.grammars import (
    Choice,
    Constraint,
    Ebnf,
    EmptyConstraintError,
    FixedText,
    Grammar,
    GrammarTooComplexError,
    JsonObject,
    JsonSchema,
    Regex,
    Series,
    StructuralTag,
    Tag,
    Vocabulary,
    compile_constraint,
)

BYTES = Vocabulary.from_tokens([*(bytes((b,)) for b in range(256)), None], {256})

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "born": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string", "minLength": 3}, "minItems": 2},
    },
    "required": ["name", "born", "tags"],
}
TREE = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "value": {"enum": [10, 200]},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            },
            "required": ["value", "children"],
        }
    },
}
BRACKETS = Ebnf('root ::= "(" root ")" | [0-9]+')


@pytest.mark.parametrize(
    ("constraint", "before", "completion"),
    [
        (JsonSchema(PERSON), "", '{"name":"","born":0,"tags":["000","000"]}'),
        (JsonSchema(PERSON), '{"name": "Ad', '","born":0,"tags":["000","000"]}'),
        (JsonSchema(PERSON), '{"tags":["abc', '","000"],"name":"","born":0}'),
        (JsonSchema(TREE), '{"children":[{"children":[', '],"value":10}],"value":10}'),
        (JsonSchema({"type": "array", "uniqueItems": True, "minItems": 3}), '["a"', ",0,1]"),
        (JsonSchema({"contains": {"const": 5}, "minContains": 2, "type": "array"}), "[1", ",5,5]"),
        (JsonSchema({"type": "object", "minProperties": 2}), '{"":', '0,"0":0}'),
        (JsonSchema({"dependentRequired": {"a": ["bb"]}, "type": "object"}), '{"a":1', ',"bb":0}'),
        (JsonObject(), '{"a":[[{"b":"', '"}]]}'),
        (Regex(r"[0-9]{4}-[0-9]{2}"), "19", "00-00"),
        (Choice(("abc", "abd", "xyzzy")), "x", "yzzy"),
        (BRACKETS, "(((1", ")))"),
        (BRACKETS, "((", "0))"),
    ],
)
def test_completions_demand_what_the_constraint_demands(
    constraint: Constraint, before: str, completion: str
) -> None:
    matcher = compile_constraint(constraint, BYTES).matcher()
    assert matcher.accept_bytes(before.encode())
    assert len(matcher.shortest_completion()) == len(completion)
    assert matcher.accept_bytes(matcher.shortest_completion())
    assert matcher.is_accepting
    assert matcher.shortest_completion() == b""


def test_an_open_tag_is_closed() -> None:
    call = Tag("<call>", JsonSchema(PERSON), "</call>")
    constraint = StructuralTag(Series((FixedText("go: "), call)))
    grammar = compile_constraint(constraint, BYTES)
    matcher = grammar.matcher()
    assert matcher.accept_bytes(b'go: <call>{"born":1')
    completion = matcher.shortest_completion()
    assert completion.endswith(b"</call>")
    assert grammar.match(matcher.text + completion)


def test_a_completion_changes_nothing() -> None:
    matcher = compile_constraint(JsonSchema(PERSON), BYTES).matcher()
    assert matcher.accept_bytes(b'{"born":')
    assert matcher.shortest_completion() == matcher.shortest_completion()
    assert matcher.accept_bytes(b'12,"name":"x","tags":["abc","abd"]}')
    assert matcher.is_accepting


def is_accepted_within(grammar: Grammar, before: bytes, length: int) -> bool:
    """Whether some text of at most ``length`` bytes completes ``before``; tries them all."""
    level = [before]
    for _ in range(length + 1):
        following: list[bytes] = []
        for text in level:
            matcher = grammar.matcher()
            assert not text or matcher.accept_bytes(text)
            if matcher.is_accepting:
                return True
            longer = (bytes((byte,)) for byte in b'01a"{}[],:bt')
            following += [text + last for last in longer if matcher.fork().accept_bytes(last)]
        level = following
    return False


items = st.sampled_from(
    [
        {"const": 1},
        {"enum": ["a", 0]},
        {"type": "array", "maxItems": 1, "minItems": 1},
        {"const": ""},
    ]
)
small_schemas: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.fixed_dictionaries(
        {"type": st.just("array"), "items": items},
        optional={
            "minItems": st.integers(0, 2),
            "uniqueItems": st.booleans(),
            "contains": st.sampled_from([{"const": 1}, {"const": "a"}]),
        },
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("object"),
            "properties": st.fixed_dictionaries({"a": items, "b": items}),
            "additionalProperties": st.just(False),
        },
        optional={
            "required": st.sampled_from([["a"], ["b"]]),
            "minProperties": st.integers(0, 1),
            "dependentRequired": st.just({"a": ["b"]}),
        },
    ),
)


@settings(max_examples=60, deadline=None)
@given(schema=small_schemas)
def test_no_shorter_text_completes(schema: dict[str, Any]) -> None:
    try:
        grammar = compile_constraint(JsonSchema(schema), BYTES)
    except EmptyConstraintError:
        return
    completion = grammar.matcher().shortest_completion()
    assert grammar.match(completion)
    shorter = min(len(completion) - 1, 7)
    assert not is_accepted_within(grammar, b"", shorter), (schema, completion)


@pytest.mark.parametrize("work", [300, 20_000])
def test_searches_are_bounded_by_counted_work(work: int) -> None:
    schema = {"type": "array", "items": {"type": "integer"}, "minItems": 20, "uniqueItems": True}
    grammar = compile_constraint(JsonSchema(schema), BYTES)
    matcher = grammar.matcher()
    num_states = grammar.num_states
    try:
        pieces = matcher.completion(max_work=work)
    except GrammarTooComplexError:
        assert work == 300
    else:
        assert grammar.match(b"".join(piece for piece in pieces if isinstance(piece, bytes)))
    assert grammar.num_states - num_states <= 4 * work


def test_a_search_that_failed_is_not_made_again() -> None:
    schema = {"type": "array", "items": {"type": "integer"}, "minItems": 20, "uniqueItems": True}
    grammar = compile_constraint(JsonSchema(schema), BYTES)
    for _ in range(2):
        with pytest.raises(GrammarTooComplexError, match="no completion was found"):
            grammar.matcher().completion(max_work=20)
        num_states = grammar.num_states
    assert grammar.num_states == num_states
    assert grammar.matcher().completion(max_work=20_000)

"""Promised: a structural tag's parts in their order, JSON inside, special tokens, no dead ends."""

from __future__ import annotations

import json
import pickle
import random
import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.grammars import (
    AnyOf,
    Choice,
    Constraint,
    ConstraintError,
    Ebnf,
    FixedText,
    FreeText,
    Grammar,
    JsonObject,
    JsonSchema,
    Matcher,
    Part,
    Regex,
    Repeated,
    Series,
    StructuralTag,
    Tag,
    TriggeredTags,
    Vocabulary,
    compile_constraint,
)

Compile = Callable[[Constraint], Grammar]
Allowed = Callable[[Matcher], set[int]]

EOS, CALL, END_CALL, END_THINK = 256, 257, 258, 259

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
    "additionalProperties": False,
}
CALL_TAG = Tag("<tool_call>", JsonSchema(PERSON), "</tool_call>")


def check(compile_: Compile, root: Part, yes: list[str], no: list[str]) -> None:
    grammar = compile_(StructuralTag(root))
    for text in yes:
        assert grammar.match(text), (text, grammar.match(text))
    for text in no:
        assert not grammar.match(text), text


def test_a_series_of_anything(compile_: Compile) -> None:
    root = Series(
        (
            FixedText("id "), Regex("[0-9]+"), FixedText(": "), JsonSchema(PERSON),
            FixedText("\n"), Choice(("yes", "no")), Ebnf('root ::= "(" root ")" | "!"'),
        )
    )  # fmt: skip
    check(
        compile_,
        root,
        ['id 12: {"name": "é", "age": 3}\nyes((!))', 'id 1: {"name":""}\nno!'],
        [
            'id : {"name": ""}\nyes!',
            'id 1: {"age": 3}\nyes!',
            'id 1: {"name": ""}\nyes((!)',
            "id 1",
        ],
    )


def test_schemas_of_one_shape_are_distinguished(compile_: Compile) -> None:
    def tag(name: str, kind: str) -> Tag:
        inner = {"type": "object", "properties": {"b": {"type": "array", "items": {"type": kind}}}}
        schema = {
            "type": "object",
            "properties": {"a": {"type": kind}, "c": inner},
            "additionalProperties": False,
        }
        return Tag(f"<{name}>", JsonSchema(schema), f"</{name}>")

    tags = (tag("f", "integer"), tag("g", "boolean"))
    numbers, truths = '{"a": 1, "c": {"b": [2]}}', '{"a": true, "c": {"b": [false]}}'
    right = f"<f>{numbers}</f>", f"<g>{truths}</g>"
    wrong = [f"<f>{truths}</f>", f"<g>{numbers}</g>", '<g>{"c": {"b": [2]}}</g>']
    check(compile_, AnyOf(tags), [*right], wrong)
    check(compile_, Series(tags), ["".join(right)], [right[0] + text for text in wrong])


def test_tools_in_auto_mode(compile_: Compile) -> None:
    check(
        compile_,
        TriggeredTags((CALL_TAG,)),
        [
            "", "hi", "a < b <tool_cal", '<tool_call>{"name": "x"}</tool_call>',
            'well <tool_call>{"name": "</tool_call>"}</tool_call> and '
            '<tool_call>{"name": "", "age": 2}</tool_call>!',
        ],
        [
            "<tool_call>", "x<tool_call>{}</tool_call>", '<tool_call>{"name": "x"}',
            '<tool_call>{"name": "x", "age": -1}</tool_call>', "a <tool_call>hello</tool_call>",
        ],
    )  # fmt: skip


def test_a_trigger_that_several_tags_share_and_bounds(compile_: Compile) -> None:
    tags = (Tag("<f=a>", Regex("x+"), "</f>"), Tag("<f=b>", JsonObject(), "</f>"))
    check(
        compile_,
        TriggeredTags(tags, ("<f=",), minimum=1, maximum=2),
        ["hey<f=a>xx</f>", "<f=b>{}</f>-<f=a>x</f>.", "<f<f=a>x</f>"],
        ["hey", "<f=", "<f=c>", "<f=a>x</f>" * 3, "<f=a></f>", "<f=a>x</f><f="],
    )


def test_triggers_that_overlap(compile_: Compile) -> None:
    tags = (
        Tag("aab", FixedText("1"), "."),
        Tag("ab", FixedText("2"), "."),
        Tag("aa", FixedText("3"), "."),
    )
    check(
        compile_, TriggeredTags(tags), ["ab2.", "xab2.y", "aa3.", "aab1."], ["aab", "aa", "aab2."]
    )


def test_free_text_ends_at_the_first_end(compile_: Compile) -> None:
    root = Series((Tag("<think>", FreeText(), "</think>"), FixedText("ok")))
    check(
        compile_,
        root,
        ["<think></think>ok", "<think>a<</think</think>ok"],
        ["<think>a</think>b</think>ok", "<think>a", "ok"],
    )
    until = Series((FreeText(("END", "STOP")), FixedText("END")))
    check(compile_, until, ["END", "aENEND", "ENEND"], ["STOPEND", "ENDEND", "x"])


def test_json_values_among_other_readings(compile_: Compile) -> None:
    check(
        compile_,
        AnyOf(
            (
                JsonSchema({"type": "array", "items": {"type": "integer"}, "uniqueItems": True}),
                JsonSchema({"type": "array", "items": {"type": "string"}}),
                FixedText("[1, 2] apples"),
            )
        ),
        ["[1, 2]", '["a", "a"]', "[]", "[1, 2] apples"],
        ["[1, 1]", '[1, "a"]', "[] apples", "["],
    )


def test_a_number_before_more_digits(compile_: Compile) -> None:
    number = JsonSchema({"type": "integer", "minimum": 5, "maximum": 99})
    check(
        compile_,
        Series((number, Regex("[0-9]*"), FixedText(";"))),
        ["5;", "51;", "5123;", "991;"],
        ["4;", ";", "1;"],
    )


def test_values_after_what_may_go_on_or_be_left_out(compile_: Compile) -> None:
    value = JsonSchema(PERSON)
    check(
        compile_,
        Series((Regex(r"\s{0,3}"), value, Regex("x*"))),
        ['{"name": ""}', '  \n{"name": "a"}xx'],
        ["", "    {}", '{"name": ""} '],
    )
    check(
        compile_,
        AnyOf((Tag("<think>", FreeText(), "</think>"), value, FixedText(""), FixedText("{no"))),
        ["", '{"name": "x"}', "<think>{</think>", "{no"],
        ["{", "<think>", '{"name": "x"}{no'],
    )
    check(
        compile_,
        Repeated(
            Series((JsonSchema({"type": "integer"}), AnyOf((FixedText(","), FixedText(";")))))
        ),
        ["", "1,2;", "-0,"],
        ["1", "12", "1,2"],
    )


def test_a_special_token_or_a_value(special_vocab: Vocabulary, allowed: Allowed) -> None:
    root = AnyOf((Series((FixedText("<tool_call>"), FixedText("!"))), JsonSchema(PERSON)))
    matcher = compile_constraint(StructuralTag(root), special_vocab).matcher()
    assert {CALL, ord("{"), ord("<")} <= allowed(matcher)
    fork = matcher.fork()
    assert fork.accept(CALL)
    assert fork.forced_bytes() == b"!"
    assert all(map(matcher.accept, b'{"name": "x"}'))
    assert allowed(matcher) == {EOS}


def test_repetition_and_nesting(compile_: Compile) -> None:
    line = Series((JsonObject(whitespace="none"), FixedText("\n")))
    check(
        compile_,
        Series((Repeated(line, 1, 3), Repeated(FixedText("ab"), 0, None))),
        ["{}\n", '{"a":1}\n{}\nabab', "{}\n{}\n{}\n"],
        ["", "ab", "{}\n{}\n{}\n{}\n", "{}"],
    )
    inner = Tag("<a>", TriggeredTags((CALL_TAG,), excluded=("</a>",)), "</a>")
    check(
        compile_,
        inner,
        ['<a>x<tool_call>{"name": "</a>"}</tool_call></a>', "<a></a>"],
        ["<a></a></a>", "<a><tool_call></a>"],
    )


# -- tokens -------------------------------------------------------------------------------------


def test_special_tokens_stand_for_their_texts(special_vocab: Vocabulary, allowed: Allowed) -> None:
    grammar = compile_constraint(StructuralTag(TriggeredTags((CALL_TAG,))), special_vocab)
    matcher = grammar.matcher()
    assert {EOS, CALL, ord("h")} <= allowed(matcher)
    assert not {END_CALL, END_THINK} & allowed(matcher)
    assert all(map(matcher.accept, b"hi "))
    assert matcher.accept(CALL)
    assert matcher.forced_bytes() == b"{"
    assert not {EOS, CALL, ord("h")} & allowed(matcher)
    assert all(map(matcher.accept, b'{"name":"x"}'))
    # The end of the tag may be one token or many; it is not forced to be either.
    assert matcher.forced_bytes() == b""
    assert END_CALL in allowed(matcher)
    assert ord("<") in allowed(matcher)
    assert not matcher.is_accepting
    assert matcher.accept(END_CALL)
    assert {EOS, CALL} <= allowed(matcher)
    matcher.rollback(2)
    assert ord("}") in allowed(matcher)
    fork = matcher.fork()
    assert fork.accept(ord("}"))
    assert all(map(fork.accept, b"</tool_call>"))
    assert fork.accept(EOS)
    assert fork.is_finished


def test_accept_agrees_with_the_mask_without_asking_for_it_first(special_vocab: Vocabulary) -> None:
    root = Series((Tag("<think>", FreeText(), "</think>"), FixedText("ok")))
    matcher = compile_constraint(StructuralTag(root), special_vocab).matcher()
    assert all(map(matcher.accept, b"<think>x"))
    assert not matcher.accept(CALL)
    assert matcher.accept(END_THINK)
    assert matcher.forced_bytes() == b"ok"


def test_special_tokens_inside_a_longer_text(special_vocab: Vocabulary, allowed: Allowed) -> None:
    root = FixedText("a<tool_call>\n</tool_call>")
    matcher = compile_constraint(StructuralTag(root), special_vocab).matcher()
    assert matcher.accept(ord("a"))
    assert CALL in allowed(matcher)
    assert matcher.accept(CALL)
    assert allowed(matcher) == {ord("\n")}
    assert matcher.accept(ord("\n"))
    assert all(map(matcher.accept, b"</tool_call>"))
    assert allowed(matcher) == {EOS}


ROOTS: list[Part] = [
    TriggeredTags((CALL_TAG, Tag("<x>", Regex("[ab]{1,3}"), "</x>")), minimum=0, maximum=3),
    Series((Tag("<think>", FreeText(), "</think>"), AnyOf((JsonSchema(PERSON), JsonObject())))),
    Series((JsonSchema({"type": "number", "minimum": 0}), Regex("[0-9]*x"))),
    AnyOf((JsonSchema({"enum": [12, "a"]}), FixedText("123"), Ebnf('root ::= "1" root | "z"'))),
]


@pytest.mark.parametrize("root", ROOTS, ids=range(len(ROOTS)))
def test_no_walk_meets_a_dead_end(
    root: Part, special_vocab: Vocabulary, allowed: Allowed, rng: random.Random
) -> None:
    grammar = compile_constraint(StructuralTag(root), special_vocab)
    for _ in range(6):
        matcher = grammar.matcher()
        for _ in range(16):
            ids = allowed(matcher)
            assert ids
            for token_id in rng.sample(range(270), 8):
                fork = matcher.fork()
                assert fork.accept(token_id) == (token_id in ids)
            token_id = rng.choice(sorted(ids))
            assert matcher.accept(token_id)
            if matcher.is_finished:
                break


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="ab<x>/", max_size=12))
def test_free_text_with_triggers_against_a_regex(compile_: Compile, text: str) -> None:
    grammar = compile_(StructuralTag(TriggeredTags((Tag("<x>", Regex("[ab]+"), "</x>"),))))
    quiet = r"(?:(?!<x>)[\s\S])*"
    expected = re.fullmatch(rf"(?:{quiet}<x>[ab]+</x>)*{quiet}", text) is not None
    assert bool(grammar.match(text)) == expected


# -- values and refusals ------------------------------------------------------------------------


def test_structural_tags_are_plain_values() -> None:
    tag = StructuralTag(TriggeredTags((Tag("<a>", Regex("x"), "</a>"),)))
    again = pickle.loads(pickle.dumps(tag))
    assert again == tag
    assert hash(again) == hash(tag)
    assert json.loads(json.dumps(tag, default=vars))["root"]["kind"] == "triggered_tags"


@pytest.mark.parametrize(
    ("root", "path", "keyword"),
    [
        (Series((FixedText("a"), JsonSchema({"type": "strin"}))), "/root/parts/1/type", "type"),
        (Series((FixedText("a"), Regex("("))), "/root/parts/1: offset 0", "group"),
        (AnyOf((Ebnf("root ::= x"),)), "/root/options/0: offset 9", "x"),
        (AnyOf(()), "/root", "any_of"),
        (Choice(()), "/root", "choice"),
        (JsonSchema({"type": "integer", "minimum": 1, "maximum": 0}), "/root", "type"),
        (TriggeredTags((CALL_TAG,), ("<x",)), "/root/tags/0/begin", "triggers"),
        (TriggeredTags(()), "/root", "tags"),
        (TriggeredTags((CALL_TAG,), minimum=2, maximum=1), "/root", "maximum"),
        (Repeated(FixedText("a"), -1), "/root", "maximum"),
        (FreeText(("",)), "/root", "excluded"),
        (FixedText("\ud800"), "/root", "text"),
    ],
)
def test_refusals_name_the_part(compile_: Compile, root: Part, path: str, keyword: str) -> None:
    with pytest.raises(ConstraintError) as caught:
        compile_(StructuralTag(root))
    assert (caught.value.path, caught.value.keyword) == (path, keyword)

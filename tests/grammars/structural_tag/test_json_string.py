"""Promised: a JSON string in a tag holds exactly the texts of its content, in every spelling."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramet.grammars import (
    Choice,
    Constraint,
    ConstraintError,
    Ebnf,
    FixedText,
    FreeText,
    Grammar,
    JsonSchema,
    JsonString,
    Part,
    Regex,
    Series,
    StructuralTag,
    Vocabulary,
    compile_constraint,
)

Compile = Callable[[Constraint], Grammar]

PATCH = Ebnf('start: "<<\\n" line+ ">>"\nline: /[^\\n]+/ "\\n"', dialect="lark")
BALANCED = Ebnf('root ::= "(" root ")" | "\\"" | "é"', dialect="gbnf")


def spellings(text: str) -> list[str]:
    """The string as JSON writers spell it: raw, ASCII, and with every character escaped."""
    escaped = "".join(f"\\u{unit:04X}" for unit in _units(text))
    return [json.dumps(text, ensure_ascii=False), json.dumps(text), f'"{escaped}"']


def _units(text: str) -> list[int]:
    data = text.encode("utf-16-be")
    return [int.from_bytes(data[at : at + 2]) for at in range(0, len(data), 2)]


@pytest.mark.parametrize(
    ("content", "inside", "outside"),
    [
        (PATCH, ["<<\nab\n>>", '<<\n"q" \\ 🎈\nsecond\n>>'], ["<<\n>>", "<<\na\n>", "<<a>>"]),
        (BALANCED, ['"', '(("))', "(é)"], ["(", "()", "((é)"]),
        (Regex(r'[a-z]"+\t'), ['a"\t', 'z""\t'], ["a\t", 'a"']),
        (Choice(("", "\\", "\n")), ["", "\\", "\n"], ["\\\\", " "]),
        (Series((FixedText("<tool_call>"), FreeText(excluded=("\n",)))), ["<tool_call>x"], ["x"]),
    ],
)
def test_the_value_is_a_text_of_the_content(
    compile_: Compile, content: Part, inside: list[str], outside: list[str]
) -> None:
    grammar = compile_(StructuralTag(JsonString(content)))
    for text in inside:
        for spelling in spellings(text):
            assert grammar.match(spelling), spelling
        assert not grammar.match(text + '"')
    for text in outside:
        for spelling in spellings(text):
            assert not grammar.match(spelling), spelling


@given(st.text(max_size=8))
def test_equal_to_the_regex_on_the_decoded_value(text: str) -> None:
    matches = re.fullmatch(r'(?:[^"\n]|"")*', text) is not None
    for spelling in spellings(text):
        assert bool(_PAIRED_QUOTES.match(spelling)) == matches


_PAIRED_QUOTES = compile_constraint(
    StructuralTag(JsonString(Regex(r'(?:[^"\n]|"")*'))),
    Vocabulary.from_tokens([bytes((i,)) for i in range(256)] + [None], {256}),
)


def test_the_shortest_completion_is_a_whole_string(compile_: Compile) -> None:
    matcher = compile_(StructuralTag(JsonString(PATCH))).matcher()
    for byte in b'"<<\\n':
        assert matcher.accept(byte)
    value = json.loads('"<<\\n' + matcher.shortest_completion().decode())
    assert re.fullmatch(r"<<\n[^\n]+\n>>", value)


def test_special_tokens_are_no_part_of_a_string(special_vocab: Vocabulary) -> None:
    grammar = compile_constraint(StructuralTag(JsonString(FixedText("<tool_call>"))), special_vocab)
    assert grammar.match('"<tool_call>"')


def test_a_json_value_is_refused(compile_: Compile) -> None:
    with pytest.raises(ConstraintError) as refused:
        compile_(StructuralTag(JsonString(JsonSchema({}))))
    assert refused.value.keyword == "json_string"
    assert refused.value.path == "/root/content"

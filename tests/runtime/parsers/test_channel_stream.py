"""Outputs in channels: the same parts however the text is cut, and nothing lost."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.runtime.parsers import (
    TOOL_FORMATS,
    ChannelParser,
    ChatDelta,
    ContentDelta,
    ReasoningDelta,
    ToolArgumentsDelta,
    ToolCallEnd,
    ToolCallStart,
    detect_reasoning_format,
    detect_tool_format,
    join_deltas,
)
from ramet.runtime.tokenizer.kinds import TokenKind
from ramet.runtime.tokenizer.read import _end_ids


def parse(pieces: list[str], **options: Any) -> list[ChatDelta]:
    parser = ChannelParser(**{"has_tools": True, **options})
    deltas: list[ChatDelta] = []
    for piece in pieces:
        deltas += parser.feed(piece)
    return join_deltas(deltas + parser.feed("", final=True))


def call(name: str, arguments: str, index: int = 0, complete: bool = True) -> list[ChatDelta]:
    return [
        ToolCallStart(index, name),
        ToolArgumentsDelta(index, arguments),
        ToolCallEnd(index, complete),
    ]


THOUGHT = "<|channel|>analysis<|message|>Hm, Oslo.<|end|><|start|>assistant"
WEATHER = '{"city": "a<|call|>b", "days": 2}'
CALL = "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>"

OUTPUTS: list[tuple[str, list[ChatDelta]]] = [
    (
        THOUGHT + "<|channel|>final<|message|>It is sunny.<|return|>",
        [ReasoningDelta("Hm, Oslo."), ContentDelta("It is sunny.")],
    ),
    ("<|channel|>final<|message|> as it is \n", [ContentDelta(" as it is \n")]),
    (
        THOUGHT + CALL + WEATHER + "<|call|>",
        [ReasoningDelta("Hm, Oslo."), *call("weather", WEATHER)],
    ),
    (CALL + WEATHER, call("weather", WEATHER)),
    (CALL + '{"city": "Os', call("weather", '{"city": "Os', complete=False)),
    (CALL, []),
    (
        " to=functions.f<|channel|>commentary json<|message|>{}<|call|>",
        call("f", "{}"),
    ),
    (
        "<|channel|>analysis to=functions.f code<|message|>{}<|call|>",
        call("f", "{}"),
    ),
    (
        "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant" + CALL + "{}<|call|>",
        [ContentDelta("I look."), *call("weather", "{}")],
    ),
    (
        CALL + "{}<|call|><|start|>assistant" + CALL + '{"a": 1}<|call|>',
        [*call("weather", "{}"), *call("weather", '{"a": 1}', 1)],
    ),
    (
        THOUGHT + "<|channel|>analysis<|message|>More.<|end|>",
        [ReasoningDelta("Hm, Oslo.\nMore.")],
    ),
    (
        "<|channel|>commentary<|message|>One.<|end|><|start|>assistant<|channel|>final"
        "<|message|>Two.",
        [ContentDelta("One.\nTwo.")],
    ),
    ("plain text", [ContentDelta("plain text")]),
    ("to see", [ContentDelta("to see")]),
    ("<|chan", []),
    ("a <|ret", [ContentDelta("a <|ret")]),
    (CALL + "no JSON<|call|>", [ContentDelta("no JSON")]),
    (CALL + '{"a": 1]}<|call|>', call("weather", '{"a": 1', complete=False)),
    ("<|channel|>analysis<|message|>cut <|en", [ReasoningDelta("cut <|en")]),
]


@pytest.mark.parametrize(("text", "expected"), OUTPUTS)
def test_every_cut_gives_the_same(text: str, expected: list[ChatDelta]) -> None:
    assert parse([text]) == expected
    assert parse(list(text)) == expected
    for cut in range(len(text) + 1):
        assert parse([text[:cut], text[cut:]]) == expected, cut


def test_without_tools_what_is_written_to_a_function_is_text() -> None:
    assert parse([CALL + "{}<|call|>"], has_tools=False) == [ContentDelta("{}")]


def test_an_answer_that_the_prompt_has_begun_goes_on() -> None:
    assert parse(list("on.<|return|>"), is_answer_open=True) == [ContentDelta("on.")]


FRAGMENTS = [
    *("<|start|>", "assistant", "<|channel|>", "analysis", "commentary", "final", "<|message|>"),
    *("<|end|>", "<|return|>", "<|call|>", "<|constrain|>json", " to=functions.f", "to=x", "{}"),
    *('{"a": ', '"<|end|>"', "}", "]", "1", "text", " ", "\n", "<|", "|>", "<", "é", CALL, THOUGHT),
]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.sampled_from(FRAGMENTS), max_size=16).map("".join),
    st.lists(st.integers(0, 300), max_size=6),
    st.booleans(),
)
def test_any_text_cut_anywhere_gives_well_formed_deltas(
    text: str, cuts: list[int], has_tools: bool
) -> None:
    whole = parse([text], has_tools=has_tools)
    places = sorted({cut % (len(text) + 1) for cut in cuts})
    pieces = [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
    assert parse(pieces, has_tools=has_tools) == whole
    assert parse(list(text), has_tools=has_tools) == whole
    num_calls, arguments = 0, ""
    for delta in whole:
        match delta:
            case ToolCallStart(index, name):
                assert index == num_calls
                assert name
                arguments = ""
            case ToolArgumentsDelta(index, more):
                assert index == num_calls
                arguments += more
            case ToolCallEnd(index, complete):
                assert index == num_calls
                num_calls += 1
                if complete:
                    assert isinstance(json.loads(arguments), dict)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text(), st.text() | st.integers() | st.lists(st.text()), max_size=3))
def test_what_the_format_writes_it_reads(arguments: dict[str, Any]) -> None:
    harmony = TOOL_FORMATS["harmony"]
    text = json.dumps(arguments, ensure_ascii=False)
    assert parse(list(harmony.opening("f") + text + harmony.closing)) == call("f", text)


def test_harmony_is_found_in_templates() -> None:
    template = "<|start|>{{ role }}<|channel|>final<|message|>{{ text }}<|end|>"
    assert detect_tool_format(template).name == "harmony"
    found = detect_reasoning_format(template)
    assert found is not None
    assert found.name == "harmony"


@pytest.mark.parametrize(
    ("texts", "ends"),
    [
        (["a", "<|end|>", "<|return|>", "<|call|>"], {2, 3}),
        (["a", "<|end|>", "<|endoftext|>"], {1, 2}),
    ],
)
def test_the_end_of_a_message_ends_an_output_only_where_there_is_no_other(texts, ends) -> None:
    kinds = [TokenKind.NORMAL, *[TokenKind.CONTROL] * (len(texts) - 1)]
    file: Any = SimpleNamespace(metadata={}, path="model")
    assert _end_ids(file, texts, kinds) == ends

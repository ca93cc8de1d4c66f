"""Reasoning and tool-call parsers: the same result however the text is cut, and nothing lost."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.runtime.parsers import (
    REASONING_FORMATS,
    TOOL_FORMATS,
    ChatDelta,
    ChatParser,
    ContentDelta,
    ReasoningDelta,
    ToolArgumentsDelta,
    ToolCallEnd,
    ToolCallParser,
    ToolCallStart,
    detect_reasoning_format,
    detect_tool_format,
    join_deltas,
)

THINK = REASONING_FORMATS["think"]
SCHEMAS = {
    "get_weather": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    },
    "f": {"type": "object"},
}


def parse(parser: Any, pieces: list[str]) -> list[ChatDelta]:
    deltas: list[ChatDelta] = []
    for piece in pieces:
        deltas += parser.feed(piece)
    return join_deltas(deltas + parser.feed("", final=True))


def pieces_at(text: str, cuts: list[int]) -> list[str]:
    places = sorted({cut % (len(text) + 1) for cut in cuts})
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


def call(name: str, arguments: str, index: int = 0, complete: bool = True) -> list[ChatDelta]:
    middle = [ToolArgumentsDelta(index, arguments)] if arguments else []
    return [ToolCallStart(index, name), *middle, ToolCallEnd(index, complete)]


WEATHER = '{"city": "Paris", "days": 2}'

OUTPUTS: list[tuple[str, str, list[ChatDelta]]] = [
    (
        "hermes",
        f'<tool_call>\n{{"name": "get_weather", "arguments": {WEATHER}}}\n</tool_call>',
        call("get_weather", WEATHER),
    ),
    (
        "hermes",
        'Let me see.\n<tool_call>{"name":"f","arguments":{}}</tool_call>\n'
        '<tool_call>{"arguments":{"x":"}<\\"</tool_call>"},"name":"f"}</tool_call>\n',
        [
            ContentDelta("Let me see."),
            *call("f", "{}"),
            *call("f", '{"x":"}<\\"</tool_call>"}', 1),
        ],
    ),
    (
        "hermes",
        '<tool_call>{"name": "f"}</tool_call> done',
        [*call("f", "{}"), ContentDelta("done")],
    ),
    ("hermes", '<tool_call>{"name": "f", "arguments": null}</tool_call>', call("f", "{}")),
    (
        "hermes",
        '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>',
        call("f", '{"a": 1}'),
    ),
    (
        "hermes",
        '<tool_call>{"name": "f", "arguments": {"a": [1, {"b": "',
        call("f", '{"a": [1, {"b": "', complete=False),
    ),
    ("hermes", 'see <tool_call>{"na', [ContentDelta('see <tool_call>{"na')]),
    ("hermes", "a < b <tool_call>no JSON", [ContentDelta("a < b <tool_call>no JSON")]),
    ("hermes", "ends like <tool_", [ContentDelta("ends like <tool_")]),
    ("hermes", "plain text \n", [ContentDelta("plain text \n")]),
    (
        "hermes",
        '<tool_call>{"name": "f", "arguments": {"a": 1]}</tool_call>after',
        [*call("f", '{"a": 1', complete=False), ContentDelta("after")],
    ),
    (
        "hermes",
        '<tool_call>{"name": "f", "arguments": {a}}</tool_call>',
        call("f", "{a}", 0, False),
    ),
    (
        "hermes",
        '<tool_call><tool_call>{"name": "f", "arguments": {}}</tool_call>',
        [ContentDelta("<tool_call>"), *call("f", "{}")],
    ),
    (
        "llama3_json",
        f'{{"name": "get_weather", "parameters": {WEATHER}}}',
        call("get_weather", WEATHER),
    ),
    (
        "llama3_json",
        ' {"name": "f", "parameters": {}}; {"name": "f", "parameters": {"a": 1}}',
        [*call("f", "{}"), *call("f", '{"a": 1}', 1)],
    ),
    (
        "llama3_json",
        '<|python_tag|>{"name": "f", "parameters": {"q": "ü"}}',
        call("f", '{"q": "ü"}'),
    ),
    ("llama3_json", '{"answer": {"name": "f"}}', [ContentDelta('{"answer": {"name": "f"}}')]),
    ("llama3_json", '{"name": "Bob", "type": 3}', [ContentDelta('{"name": "Bob", "type": 3}')]),
    ("llama3_json", '{"name": "f"}', [ContentDelta('{"name": "f"}')]),
    (
        "llama3_json",
        '{"name": "g", "parameters": "<|python_tag|>',
        [ContentDelta('{"name": "g", "parameters": "<|python_tag|>')],
    ),
    ("llama3_json", "  Hello {", [ContentDelta("  Hello {")]),
    (
        "mistral",
        f'[TOOL_CALLS] [{{"name": "get_weather", "arguments": {WEATHER}}}, '
        '{"name": "f", "arguments": {}}]',
        [*call("get_weather", WEATHER), *call("f", "{}", 1)],
    ),
    ("mistral", "[TOOL_CALLS] nothing", [ContentDelta("[TOOL_CALLS] nothing")]),
    (
        "mistral_args",
        f"[TOOL_CALLS]get_weather[ARGS]{WEATHER}[TOOL_CALLS]f{{}}",
        [*call("get_weather", WEATHER), *call("f", "{}", 1)],
    ),
    (
        "qwen3_xml",
        "I look.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nNew\nYork\n</parameter>\n"
        "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
        [ContentDelta("I look."), *call("get_weather", '{"city": "New\\nYork", "days": 3}')],
    ),
    ("qwen3_xml", "<tool_call><function=f></function></tool_call>", call("f", "{}")),
    (
        "qwen3_xml",
        "<tool_call><function=f><parameter=a>\n1",
        call("f", "{", complete=False),
    ),
]


@pytest.mark.parametrize(("name", "text", "expected"), OUTPUTS)
def test_an_output_is_split_into_text_and_calls(
    name: str, text: str, expected: list[ChatDelta]
) -> None:
    assert parse(ToolCallParser(TOOL_FORMATS[name], SCHEMAS), [text]) == expected
    assert parse(ToolCallParser(TOOL_FORMATS[name], SCHEMAS), list(text)) == expected


@pytest.mark.parametrize(("name", "text", "expected"), OUTPUTS)
def test_every_cut_into_two_gives_the_same(name: str, text: str, expected: list[ChatDelta]) -> None:
    for cut in range(len(text) + 1):
        pieces = [text[:cut], text[cut:]]
        assert parse(ToolCallParser(TOOL_FORMATS[name], SCHEMAS), pieces) == expected, cut


FRAGMENTS = [
    *("<tool_call>", "</tool_call>", '{"name": "f", "arguments": ', '{"name": "f"}', "}", "{", "["),
    *("]", ",", ";", '"', "\\", "<|python_tag|>", "[TOOL_CALLS]", "[ARGS]", "f", "é", " ", "\n"),
    *("<function=f>", "</function>", "<parameter=a>", "</parameter>", '{"a": 1}', ":", "<", "1"),
    *('{"name": "g", ', '"f"', "null", '"parameters": {', '{"name": "f", "parameters": {"a": "'),
    *("<think>", "</think>", '"name"', '"arguments"', "text"),
]


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(sorted(TOOL_FORMATS)),
    st.lists(st.sampled_from(FRAGMENTS), max_size=16).map("".join),
    st.lists(st.integers(0, 200), max_size=6),
    st.booleans(),
)
def test_any_text_cut_anywhere_gives_the_same_deltas(
    name: str, text: str, cuts: list[int], reasons: bool
) -> None:
    def parser() -> ChatParser:
        return ChatParser(
            reasoning=THINK if reasons else None, tools=TOOL_FORMATS[name], schemas=SCHEMAS
        )

    whole = parse(parser(), [text])
    assert parse(parser(), pieces_at(text, cuts)) == whole
    assert parse(parser(), list(text)) == whole


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(sorted(TOOL_FORMATS)),
    st.lists(st.sampled_from(FRAGMENTS), max_size=16).map("".join),
)
def test_calls_are_well_formed_in_any_text(name: str, text: str) -> None:
    open_call: int | None = None
    num_calls = 0
    arguments = ""
    for delta in parse(ToolCallParser(TOOL_FORMATS[name], SCHEMAS), list(text)):
        match delta:
            case ToolCallStart(index, tool):
                assert open_call is None
                assert index == num_calls
                assert tool
                open_call, arguments = index, ""
            case ToolArgumentsDelta(index, more):
                assert index == open_call
                arguments += more
            case ToolCallEnd(index, complete):
                assert index == open_call
                open_call, num_calls = None, num_calls + 1
                if complete:
                    assert isinstance(json.loads(arguments), dict)
            case _:
                assert open_call is None
    assert open_call is None


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["hermes", "generic", "llama3_json", "mistral", "mistral_args"]),
    st.dictionaries(st.text(), json_values, max_size=3),
    st.booleans(),
)
def test_what_a_format_writes_it_reads(name: str, arguments: dict[str, Any], ascii: bool) -> None:
    tool_format = TOOL_FORMATS[name]
    text = json.dumps(arguments, ensure_ascii=ascii)
    output = tool_format.opening("get_weather") + text + tool_format.closing
    assert parse(ToolCallParser(tool_format, SCHEMAS), list(output)) == call("get_weather", text)


def test_a_call_is_handed_out_while_it_is_written() -> None:
    parser = ToolCallParser(TOOL_FORMATS["hermes"])
    assert parser.feed('<tool_call>{"name": "f", "arguments": ') == []
    assert parser.feed('{"text": "ab') == [
        ToolCallStart(0, "f"),
        ToolArgumentsDelta(0, '{"text": "ab'),
    ]
    assert parser.feed("cd") == [ToolArgumentsDelta(0, "cd")]


def test_long_arguments_are_read_in_linear_time() -> None:
    parser = ToolCallParser(TOOL_FORMATS["hermes"])
    parser.feed('<tool_call>{"name": "f", "arguments": {"text": "')
    longest = 0
    for _ in range(20_000):
        deltas = parser.feed("word ")
        longest = max(longest, len(parser._buffer))
        assert deltas == [ToolArgumentsDelta(0, "word ")]
    assert longest == 0


REASONED: list[tuple[str, bool, list[ChatDelta]]] = [
    ("<think>\nhm <b>\n</think>\n\nHi", False, [ReasoningDelta("hm <b>"), ContentDelta("Hi")]),
    ("  <think>a</think>b", False, [ReasoningDelta("a"), ContentDelta("b")]),
    ("<think>\n\n</think>\n\nHi\n", False, [ContentDelta("Hi\n")]),
    ("because</think>so", True, [ReasoningDelta("because"), ContentDelta("so")]),
    ("cut short \n", True, [ReasoningDelta("cut short")]),
    ("cut </thi", True, [ReasoningDelta("cut </thi")]),
    ("No <think>tags</think>", False, [ContentDelta("No <think>tags</think>")]),
    ("<thin", False, [ContentDelta("<thin")]),
    ("", False, []),
]


@pytest.mark.parametrize(("text", "is_open", "expected"), REASONED)
def test_reasoning_is_split_off(text: str, is_open: bool, expected: list[ChatDelta]) -> None:
    for cut in range(len(text) + 1):
        parser = ChatParser(reasoning=THINK, is_reasoning_open=is_open)
        assert parse(parser, [text[:cut], text[cut:]]) == expected
    assert parse(ChatParser(reasoning=THINK, is_reasoning_open=is_open), list(text)) == expected


def test_reasoning_then_a_call() -> None:
    text = '<think>I call f.</think>\n<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    parser = ChatParser(reasoning=THINK, tools=TOOL_FORMATS["hermes"], schemas=SCHEMAS)
    assert parse(parser, list(text)) == [ReasoningDelta("I call f."), *call("f", "{}")]


def test_a_tag_in_the_reasoning_is_no_call() -> None:
    text = '<think><tool_call>{"name": "f"}</tool_call></think>ok'
    parser = ChatParser(reasoning=THINK, tools=TOOL_FORMATS["hermes"], schemas=SCHEMAS)
    kinds = [type(delta) for delta in parse(parser, [text])]
    assert kinds == [ReasoningDelta, ContentDelta]


def test_formats_are_found_in_templates() -> None:
    assert detect_tool_format(None).name == "generic"
    assert detect_tool_format("... <tool_call>\n{{ x }} ...").name == "hermes"
    assert detect_tool_format("<tool_call>\n<function=a>\n<parameter=b>").name == "qwen3_xml"
    assert detect_tool_format("[TOOL_CALLS] [...]").name == "mistral"
    assert detect_tool_format("[TOOL_CALLS]f[ARGS]").name == "mistral_args"
    assert detect_tool_format("{{ '<|python_tag|>' }}").name == "llama3_json"
    assert detect_reasoning_format("<think> ... </think>") is THINK
    assert detect_reasoning_format("plain") is None

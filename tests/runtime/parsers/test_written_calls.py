"""Promised: what a format writes as a call is read back as that call, however the text is cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramet.runtime.parsers import TOOL_FORMATS, ToolFormat
from ramet.runtime.parsers.deltas import ToolArgumentsDelta, ToolCallEnd, ToolCallStart
from ramet.runtime.parsers.tool_calls import ToolCallParser
from ramet.runtime.parsers.xml_values import END, is_plain_text, listed_texts

MARKS = [mark for each in TOOL_FORMATS.values() for mark in (each.begin, each.end) if mark]
TEXTS = st.text(max_size=8) | st.sampled_from(
    [*MARKS, END, f'"{END}', f"\\{END}", '"', "\\", "\n", "{", "]", "</function>", '{"a": "']
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=5,
)  # fmt: skip
STYLES = {name: each for name, each in TOOL_FORMATS.items() if each.style != "channels"}
"""Channels are another parser's: see ``test_channel_stream``."""


@st.composite
def parameters(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arguments, and the schema of each."""
    arguments = draw(st.dictionaries(st.sampled_from(["a", "b", "c d"]), VALUES, max_size=3))
    schemas: dict[str, Any] = {}
    for key, value in arguments.items():
        options: list[Any] = [True, {}, {"const": value}, {"enum": [value, "else"]}]
        if isinstance(value, str):
            options += [{"type": "string"}, {"type": ["string", "null"]}]
        schemas[key] = draw(st.sampled_from(options))
    return arguments, schemas


def written(tool_format: ToolFormat, arguments: dict[str, Any], schemas: dict[str, Any]) -> str:
    """A call as the grammar of its format allows it."""
    if tool_format.style != "xml":
        return tool_format.call("f", arguments)
    parts = []
    for key, value in arguments.items():
        stands = isinstance(value, str) and (
            is_plain_text(schemas[key]) or value in listed_texts(schemas[key])
        )
        text = value if stands else json.dumps(value, ensure_ascii=False)
        parts.append(f"<parameter={key}>\n{text}\n</parameter>\n")
    return tool_format.call("f", "".join(parts))


@pytest.mark.parametrize("name", STYLES)
@given(case=parameters(), data=st.data())
def test_a_written_call_is_read_back(name: str, case: Any, data: st.DataObject) -> None:
    arguments, schemas = case
    tool_format = STYLES[name]
    if tool_format.style == "xml":  # plain text ends at its mark: the grammar excludes it
        arguments = {
            key: value.replace(END, "") if isinstance(value, str) and is_plain_text(schemas[key])
            else value for key, value in arguments.items()
        }  # fmt: skip
    text = written(tool_format, arguments, schemas)
    parser = ToolCallParser(tool_format, {"f": {"properties": schemas}})
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    deltas = [each for piece in pieces for each in parser.feed(piece)]
    deltas += parser.feed("", final=True)
    assert [each.name for each in deltas if isinstance(each, ToolCallStart)] == ["f"]
    read = "".join(each.text for each in deltas if isinstance(each, ToolArgumentsDelta))
    assert json.loads(read) == arguments
    assert [each.complete for each in deltas if isinstance(each, ToolCallEnd)] == [True]

"""Promised: what a format writes as a call is read back as that call, however the text is cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramet.runtime.parsers import TOOL_FORMATS
from ramet.runtime.parsers.argument_values import is_plain_text
from ramet.runtime.parsers.deltas import ToolArgumentsDelta, ToolCallEnd, ToolCallStart
from ramet.runtime.parsers.tool_calls import ToolCallParser

MARKS = [mark for each in TOOL_FORMATS.values() for mark in each.marks]
ENDS = [each.tags.value_end for each in TOOL_FORMATS.values()]
TEXTS = st.text(max_size=8) | st.sampled_from(
    [
        *MARKS,
        *ENDS,
        f'"{ENDS[0]}',
        f"\\{ENDS[0]}",
        '"',
        "'",
        "\\",
        "\n",
        "{",
        "]",
        "</function>",
        '{"a": "',
    ]
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
    arguments = draw(st.dictionaries(st.sampled_from(["a", "b", "c"]), VALUES, max_size=3))
    schemas: dict[str, Any] = {}
    for key, value in arguments.items():
        options: list[Any] = [True, {}, {"const": value}, {"enum": [value, "else"]}]
        if isinstance(value, str):
            options += [{"type": "string"}, {"type": ["string", "null"]}]
        schemas[key] = draw(st.sampled_from(options))
    return arguments, schemas


@pytest.mark.parametrize("name", STYLES)
@given(case=parameters(), data=st.data())
def test_a_written_call_is_read_back(name: str, case: Any, data: st.DataObject) -> None:
    arguments, schemas = case
    tool_format = STYLES[name]
    if tool_format.style == "xml":  # plain text ends at its mark: the grammar excludes it
        end = tool_format.tags.value_end
        arguments = {
            key: value.replace(end, "")
            if isinstance(value, str) and is_plain_text(schemas[key])
            else value
            for key, value in arguments.items()
        }
    schema = {"properties": schemas}
    text = tool_format.call("f", arguments, schema)
    parser = ToolCallParser(tool_format, {"f": schema})
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    deltas = [each for piece in pieces for each in parser.feed(piece)]
    deltas += parser.feed("", final=True)
    assert [each.name for each in deltas if isinstance(each, ToolCallStart)] == ["f"]
    read = "".join(each.text for each in deltas if isinstance(each, ToolArgumentsDelta))
    assert json.loads(read) == arguments
    assert [each.complete for each in deltas if isinstance(each, ToolCallEnd)] == [True]

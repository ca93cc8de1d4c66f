"""Promised: a turn's record is the same for any split of the model's output."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramet.runtime.chat.agent_turns import RecordWriter, read_record
from ramet.runtime.parsers import TOOL_FORMATS, ChatParser

_SCHEMAS = {"f": {"type": "object", "properties": {"x": {"type": "string"}}}}
_NAMES = [name for name, each in TOOL_FORMATS.items() if each.style != "channels"]


def _record(output: list[str], name: str, *, is_json: bool = False, is_cut: bool = False) -> str:
    parser = ChatParser(tools=TOOL_FORMATS[name], schemas=_SCHEMAS)
    writer = RecordWriter(parser, is_json=is_json)
    return "".join(map(writer.feed, output)) + writer.finish(is_cut=is_cut)


@given(st.data())
def test_calls_of_every_format_and_split(data) -> None:
    name = data.draw(st.sampled_from(_NAMES))
    texts = data.draw(st.lists(st.text(st.characters(codec="ascii", exclude_categories=["Cc"]))))
    written = TOOL_FORMATS[name].calls([("f", {"x": f"a{text}b"}) for text in texts], _SCHEMAS)
    output = written if texts else 'say "this"\n'
    cut = data.draw(st.integers(0, len(output)))
    record = _record([output[:cut], output[cut:]], name)
    assert record == _record([output], name)
    if texts:
        found = [call["arguments"]["x"] for call in json.loads(record)["tool_calls"]]
        assert len(found) == len(texts)
    else:
        assert json.loads(record) == {"answer": output}


def test_text_before_calls_and_typed_answers() -> None:
    call = TOOL_FORMATS["hermes"].call("f", {"x": "1"})
    record = json.loads(_record(["Let me see.\n" + call], "hermes"))
    assert record["tool_calls"] == [{"name": "f", "arguments": {"x": "1"}}]
    assert record["answer"].strip() == "Let me see."
    assert json.loads(_record(['{"a": [1]}'], "hermes", is_json=True)) == {"answer": {"a": [1]}}
    assert json.loads(_record([], "hermes")) == {"answer": ""}


@pytest.mark.parametrize("end", [5, 30, 100])
def test_a_cut_output_keeps_its_complete_calls(end: int) -> None:
    call = TOOL_FORMATS["hermes"].call("f", {"x": "1"})
    record = _record([(call + "\n" + call)[: len(call) + end]], "hermes", is_cut=True)
    complete = read_record(record)["tool_calls"]
    assert complete[0] == {"name": "f", "arguments": {"x": "1"}}
    assert len(complete) == (2 if end > len(call) else 1)


@given(st.integers(0, 200))
def test_a_cut_record_is_read_as_far_as_it_goes(end: int) -> None:
    whole = {"answer": "a", "tool_calls": [{"name": "f", "arguments": {"x": "]}"}}] * 2}
    text = json.dumps(whole)
    read = read_record(text[:end])
    assert read.get("answer", "a") == "a"
    assert read.get("tool_calls", []) == whole["tool_calls"][: len(read.get("tool_calls", []))]
    assert read_record(text) == whole

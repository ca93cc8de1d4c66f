"""Promised: custom tools and namespaces keep the client's own names and kinds, in both APIs."""

from __future__ import annotations

import json

import pytest

from ramet.runtime.engine.config import EngineConfig
from ramet.runtime.testing import server as testing

AS_SCRIPTED = EngineConfig(seed=0, forced_tokens=False)
"""Each token of a script is asked for."""

LARK = 'start: "<<" /[^\\n]+/ ">>"'
TEXT = '<<say "hé" \\ 🎈>>'
ARGUMENTS = json.dumps({"input": TEXT}, ensure_ascii=False)
CALL = f'<tool_call>\n{{"name": "patch", "arguments": {ARGUMENTS}}}\n</tool_call>'
LIST = '<tool_call>\n{"name": "mcp__files__ls", "arguments": {"path":"a"}}\n</tool_call>'

PATCH = {
    "type": "custom",
    "name": "patch",
    "format": {"type": "grammar", "syntax": "lark", "definition": LARK},
}
CHAT_PATCH = {
    "type": "custom",
    "custom": {
        "name": "patch",
        "format": {"type": "grammar", "grammar": {"syntax": "lark", "definition": LARK}},
    },
}
PATH = {"type": "object", "properties": {"path": {"enum": ["a"]}}, "required": ["path"]}
FILES = {
    "type": "namespace",
    "name": "mcp__files",
    "tools": [{"type": "function", "name": "ls", "parameters": PATH}],
}


@pytest.fixture(scope="module")
def patching():
    with testing.scripted_server([list(CALL)], engine_config=AS_SCRIPTED) as server:
        yield server


def events_of(answer):
    lines = [line for line in answer.text.splitlines() if line.startswith("data: {")]
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def respond(server, **fields):
    body = {"input": "go", "temperature": 0, "tools": [PATCH], **fields}
    answer = server.http.post("/v1/responses", json=body)
    assert answer.status_code == 200, answer.text
    return answer


def test_a_response_has_the_call_as_an_item_of_its_own(patching):
    (item,) = respond(patching).json()["output"]
    assert (item["type"], item["name"], item["input"]) == ("custom_tool_call", "patch", TEXT)


def test_its_text_streams(patching):
    events = events_of(respond(patching, stream=True))
    deltas = [e["delta"] for e in events if e["type"] == "response.custom_tool_call_input.delta"]
    assert len(deltas) > 3
    assert "".join(deltas) == TEXT
    (done,) = [e for e in events if e["type"] == "response.custom_tool_call_input.done"]
    assert done["input"] == TEXT


def test_the_history_is_what_the_model_wrote(patching):
    first = respond(patching).json()
    result = {"type": "custom_tool_call_output", "call_id": first["output"][0]["call_id"]}
    sent = [{"role": "user", "content": "go"}, *first["output"], {**result, "output": "done"}]
    again = respond(patching, input=sent).json()
    stored = respond(
        patching,
        previous_response_id=first["id"],
        input=[{**result, "output": "done"}],
    ).json()
    assert again["usage"]["input_tokens"] == stored["usage"]["input_tokens"]


def test_chat_has_the_call_as_a_custom_one(patching):
    body = {"tools": [CHAT_PATCH], "temperature": 0}
    message = patching.chat("go", **body).json()["choices"][0]["message"]
    (call,) = message["tool_calls"]
    assert (call["type"], call["custom"]) == ("custom", {"name": "patch", "input": TEXT})
    turns = [{"role": "user", "content": "go"}, message]
    turns.append({"role": "tool", "tool_call_id": call["id"], "content": "done"})
    assert patching.chat(messages=turns, **body).status_code == 200


def test_chat_streams_its_text(patching):
    answer = patching.http.post(
        "/v1/chat/completions",
        json={
            "messages": [{"role": "user", "content": "go"}],
            "tools": [CHAT_PATCH],
            "temperature": 0,
            "stream": True,
        },
    )
    calls = [
        call
        for event in events_of(answer)
        for choice in event["choices"]
        for call in choice["delta"].get("tool_calls", ())
    ]
    assert calls[0]["custom"] == {"name": "patch", "input": ""}
    assert "".join(call["custom"]["input"] for call in calls) == TEXT


def test_a_grammar_holds_for_any_logits():
    with testing.scripted_server([["<<", "no end", "\n"] * 40]) as server:
        choice = {"type": "custom", "name": "patch"}
        (item,) = respond(server, tool_choice=choice, max_output_tokens=90).json()["output"]
    assert item["input"].startswith("<<")
    assert item["input"].endswith(">>")
    assert "\n" not in item["input"]


def test_a_grammar_that_is_wrong_is_named(patching):
    wrong = {**PATCH, "format": {**PATCH["format"], "definition": "start: nothing"}}
    answer = patching.http.post("/v1/responses", json={"input": "go", "tools": [FILES, wrong]})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith("tools[1].format.definition")
    assert "patch" in answer.json()["error"]["message"]


def test_a_tool_of_a_namespace_is_called_by_both_names():
    with testing.scripted_server([list(LIST)], engine_config=AS_SCRIPTED) as server:
        answer = respond(server, tools=[FILES])
        (item,) = answer.json()["output"]
        assert (item["type"], item["namespace"], item["name"]) == (
            "function_call",
            "mcp__files",
            "ls",
        )
        result = {"type": "function_call_output", "call_id": item["call_id"], "output": "x"}
        sent = [{"role": "user", "content": "go"}, item, result]
        assert respond(server, input=sent, tools=[FILES]).status_code == 200


def test_names_of_namespaces_are_apart(patching):
    other = {**FILES, "name": "other"}
    assert respond(patching, tools=[PATCH, FILES, other]).status_code == 200
    twice = patching.http.post("/v1/responses", json={"input": "go", "tools": [FILES, FILES]})
    assert twice.status_code == 400
    assert twice.json()["error"]["param"] == "tools[1]"

"""Fields under other servers' names, and errors that use the name that was sent."""

from __future__ import annotations

import json
from typing import Any

import pytest

USER = [{"role": "user", "content": "hi"}]
SCHEMA = {"type": "object", "properties": {"n": {"enum": [12]}}, "required": ["n"]}
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
TOOL = {"name": "f", "parameters": SCHEMA}


def post(server: Any, path: str, **fields: Any) -> Any:
    prompt = {"prompt": "x"} if path == COMPLETIONS else {"messages": USER}
    if path == "/v1/responses":
        prompt = {"input": "hi"}
    return server.http.post(path, json=prompt | fields)


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"regex": "[7]{3}"}, "777"),
        ({"ebnf": 'root ::= "ab" | "abc" "d"'}, None),
        ({"json_schema": json.dumps(SCHEMA)}, '{"n":12}'),
        ({"json_schema": SCHEMA}, '{"n":12}'),
        ({"response_format": {"type": "json_object", "schema": SCHEMA}}, '{"n":12}'),
        ({"response_format": {"type": "json_schema", "schema": SCHEMA}}, '{"n":12}'),
    ],
)
def test_other_servers_constraint_fields_are_taken(serve, path, fields, text):
    answer = post(serve(), path, max_tokens=60, **fields)
    assert answer.status_code == 200, answer.text
    choice = answer.json()["choices"][0]
    written = choice["text"] if path == COMPLETIONS else choice["message"]["content"]
    assert written == text if text else written in ("ab", "abcd")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"guided_regex": "a", "guided_json": SCHEMA}, "guided_regex"),
        ({"regex": "a", "ebnf": "b"}, "ebnf"),
        ({"response_format": {"type": "json_object"}, "regex": "a"}, "regex"),
        ({"response_format": {"type": "text", "schema": SCHEMA}}, "response_format.schema"),
        (
            {"response_format": {"type": "json_schema", "schema": SCHEMA,
                                 "json_schema": {"name": "n", "schema": SCHEMA}}},
            "response_format.schema",
        ),
        ({"response_format": {"type": "json_object", "schema": {"type": "strnig"}}},
         "response_format.schema.type"),
        ({"json_schema": "{"}, "json_schema"),
    ],
)  # fmt: skip
def test_wrong_constraints_are_errors_at_the_field_that_was_sent(serve, fields, param):
    answer = post(serve(), CHAT, **fields)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize(
    ("path", "name", "hint"),
    [
        (CHAT, "n_predict", "max_tokens"),
        (CHAT, "max_new_tokens", "max_tokens"),
        ("/v1/responses", "max_tokens", "max_output_tokens"),
        ("/v1/responses", "n_predict", "max_output_tokens"),
        (COMPLETIONS, "repeat_penalty", "repetition_penalty"),
        (CHAT, "tempertaure", "temperature"),
        (CHAT, "cache_prompt", None),
        (CHAT, "predictions", None),
        (CHAT, "audi", None),
    ],
)
def test_hints_name_only_what_is_taken(serve, path, name, hint):
    error = post(serve(), path, **{name: 1}).json()["error"]
    assert error["code"] == "unknown_parameter"
    assert error["message"].endswith(f"did you mean {hint}?" if hint else f"parameter {name}")


def test_a_tool_without_a_type_is_refused_with_what_it_lacks(serve):
    error = post(serve(), CHAT, tools=[{"function": TOOL}]).json()["error"]
    assert (error["param"], error["message"]) == ("tools[0].type", "tools[0].type is required")
    error = post(serve(), CHAT, tools=[{"type": "web"}]).json()["error"]
    assert error["param"] == "tools[0].type"
    assert "'web'" in error["message"]


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ({"tool_call_id": "c2"}, "no earlier message has a tool call with the id 'c2'"),
        ({}, "messages[2].tool_call_id is required"),
    ],
)
def test_a_result_names_its_call(serve, result, message):
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    asked = {"role": "assistant", "content": "", "tool_calls": [call]}
    messages = [*USER, asked, {"role": "tool", "content": "1", **result}]
    error = serve().http.post(CHAT, json={"messages": messages}).json()["error"]
    assert error["param"] == "messages[2].tool_call_id"
    assert message in error["message"]


@pytest.mark.parametrize(
    ("path", "field", "fields"),
    [
        (CHAT, "max_tokens", {"json_schema": SCHEMA}),
        (CHAT, "max_completion_tokens", {"json_schema": SCHEMA}),
        (COMPLETIONS, "max_tokens", {"json_schema": SCHEMA}),
        (
            "/v1/responses",
            "max_output_tokens",
            {"text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}}},
        ),
    ],
)
def test_a_budget_below_the_minimum_is_reported_by_the_field_that_was_sent(
    serve, path, field, fields
):
    fields = fields | {field: 2, "ramet": {"complete": True}}
    error = post(serve(), path, **fields).json()["error"]
    assert error["param"] == field
    assert error["message"].startswith(f"{field} is 2; the shortest valid output takes ")
    error = post(serve(), path, **{field: 10**6}).json()["error"]
    assert error["param"] == field
    assert f"({field})" in error["message"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"messages": USER, "max_tokens": 5, "tool_choice": "required",
                "tools": [{"type": "function", "function": TOOL}]}),
        ("/v1/responses", {"input": "hi", "max_output_tokens": 5, "tool_choice": "required",
                           "tools": [{"type": "function", **TOOL}]}),
        ("/v1/messages", {"messages": USER, "max_tokens": 5, "tool_choice": {"type": "any"},
                          "tools": [{"name": "f", "input_schema": SCHEMA}]}),
    ],
)  # fmt: skip
def test_a_call_that_has_no_room_is_refused_before_anything_is_generated(serve, path, body):
    answer = serve().http.post(path, json=body)
    assert answer.status_code == 400
    assert "is 5; the shortest valid output takes" in answer.json()["error"]["message"]

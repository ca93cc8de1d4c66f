"""Promised: a known field that can't change the answer is taken and named; others are refused."""

from __future__ import annotations

import json

import pytest

from ramet.runtime.testing import server as testing

HI = [{"role": "user", "content": "hi"}]
CHAT = ("/v1/chat/completions", {"messages": HI})
COMPLETIONS = ("/v1/completions", {"prompt": "hi"})
RESPONSES = ("/v1/responses", {"input": "hi"})
MESSAGES = ("/v1/messages", {"messages": HI, "max_tokens": 8})

TAKEN = [
    (CHAT, {"verbosity": "low"}, "verbosity"),
    (CHAT, {"snippy": {"enabled": False}}, "snippy"),
    (CHAT, {"service_tier": "flex"}, "service_tier"),
    (CHAT, {"reasoning_effort": "high"}, "reasoning_effort"),
    (CHAT, {"thinking_token_budget": 16}, "thinking_token_budget"),
    (CHAT, {"tools": [{"type": "web_search"}]}, "tools[0]"),
    (CHAT, {"stream_options": None, "web_search_options": {}}, "web_search_options"),
    (COMPLETIONS, {"client_metadata": {"a": "b"}}, "client_metadata"),
    (RESPONSES, {"text": {"verbosity": "high"}}, "text.verbosity"),
    (RESPONSES, {"reasoning": {"effort": "low", "summary": "auto"}}, "reasoning.summary"),
    (RESPONSES, {"reasoning": {"effort": "low"}}, "reasoning.effort"),
    (RESPONSES, {"include": ["reasoning.encrypted_content"]}, "include"),
    (RESPONSES, {"truncation": "auto"}, "truncation"),
    (RESPONSES, {"tools": [{"type": "computer_use_preview", "display_width": 1}]}, "tools[0]"),
    (MESSAGES, {"context_management": {"edits": []}}, "context_management"),
    (MESSAGES, {"thinking": {"type": "adaptive"}}, "thinking"),
    (MESSAGES, {"thinking": {"type": "enabled", "budget_tokens": 4}}, "thinking"),
    (MESSAGES, {"output_config": {"effort": "max"}}, "output_config.effort"),
    (MESSAGES, {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0]"),
    (MESSAGES, {"mcp_servers": [{"type": "url", "url": "http://x"}]}, "mcp_servers"),
]

REFUSED = [
    (CHAT, {"verbosit": "low"}, "verbosit"),
    (CHAT, {"tools": [{"type": "functon"}]}, "tools[0].type"),
    (CHAT, {"tools": [{"type": "web_search"}], "tool_choice": "required"}, "tool_choice"),
    (CHAT, {"best_of": 3}, "best_of"),
    (RESPONSES, {"include": ["everything"]}, "include"),
    (RESPONSES, {"conversation": "c1"}, "conversation"),
    (RESPONSES, {"tools": [{"type": "mcp"}], "tool_choice": {"type": "mcp"}}, "tool_choice"),
    (MESSAGES, {"thinkin": {}}, "thinkin"),
]


@pytest.fixture(scope="module")
def server():
    with testing.scripted_server([["hi", "."]]) as running:
        yield running


def post(server, call, fields):
    path, body = call
    return server.http.post(path, json={**body, **fields})


@pytest.mark.parametrize(("call", "fields", "param"), TAKEN)
def test_a_field_without_effect_is_taken_and_named(server, call, fields, param):
    answer = post(server, call, fields)
    assert answer.status_code == 200, answer.text
    warnings = answer.json()["warnings"]
    assert param in [warning["param"] for warning in warnings]
    assert all(warning["message"].startswith(warning["param"]) for warning in warnings)
    assert param in answer.headers["x-ramet-warnings"].split(", ")


@pytest.mark.parametrize(("call", "fields", "param"), REFUSED)
def test_a_field_that_would_matter_is_refused(server, call, fields, param):
    answer = post(server, call, fields)
    assert answer.status_code == 400
    assert param in json.dumps(answer.json())


@pytest.mark.parametrize("call", [CHAT, COMPLETIONS, RESPONSES, MESSAGES])
def test_without_such_fields_there_are_no_warnings(server, call):
    answer = post(server, call, {})
    assert answer.status_code == 200
    assert "warnings" not in answer.json()
    assert "x-ramet-warnings" not in answer.headers


@pytest.mark.parametrize(
    ("call", "fields"),
    [
        (CHAT, {"verbosity": "low"}),
        (COMPLETIONS, {"client_metadata": {}}),
        (RESPONSES, {"text": {"verbosity": "low"}}),
        (MESSAGES, {"context_management": {}}),
    ],
)
def test_a_stream_names_them_in_its_first_event(server, call, fields):
    answer = post(server, call, fields | {"stream": True})
    lines = [line for line in answer.text.splitlines() if line.startswith("data: ")]
    assert '"warnings":[{"param":' in lines[0]
    assert answer.headers["x-ramet-warnings"]
    if call in (CHAT, COMPLETIONS):
        assert not any('"warnings"' in line for line in lines[1:])


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/messages/count_tokens", {"messages": HI, "context_management": {}}),
        ("/v1/responses/input_tokens", {"input": "hi", "truncation": "auto"}),
        ("/tokenize", {"messages": HI, "tools": [{"type": "web_search"}]}),
    ],
)
def test_endpoints_that_generate_nothing_name_them_in_the_header(server, path, body):
    answer = server.http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-ramet-warnings"]


@pytest.mark.parametrize(
    ("call", "field"),
    [(CHAT, "max_tokens"), (CHAT, "max_completion_tokens"), (RESPONSES, "max_output_tokens")],
)
def test_a_limit_of_minus_one_is_none(server, call, field):
    answer = post(server, call, {field: -1})
    assert answer.status_code == 200, answer.text
    assert "warnings" not in answer.json()
    assert post(server, call, {field: -2}).status_code == 400


@pytest.mark.parametrize("call", [CHAT, COMPLETIONS, RESPONSES, MESSAGES])
def test_unknown_fields_may_be_warnings(call):
    with testing.scripted_server([["hi"]], unknown_fields="warn") as server:
        answer = post(server, call, {"no_such_field": {"deep": [1]}})
    assert answer.status_code == 200, answer.text
    assert [warning["param"] for warning in answer.json()["warnings"]] == ["no_such_field"]


def test_many_unknown_fields_give_a_bounded_list():
    with testing.scripted_server([["hi"]], unknown_fields="warn") as server:
        answer = post(server, CHAT, {f"f{number}": 1 for number in range(1000)})
    assert len(answer.json()["warnings"]) == 32
    assert len(answer.headers["x-ramet-warnings"]) <= 1024

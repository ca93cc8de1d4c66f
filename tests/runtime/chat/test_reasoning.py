"""Reasoning is split off; what must be valid is the answer, whether the model reasons or not."""

from __future__ import annotations

import json

import pytest

from ramet.runtime.engine.config import EngineConfig

AS_SCRIPTED = EngineConfig(forced_tokens=False, seed=0)
SCHEMA = {
    "type": "object",
    "properties": {"x": {"enum": [1, 2]}},
    "required": ["x"],
    "additionalProperties": False,
}
WANTED = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
THINKING = ["<think>", "\nFirst {", " then </", "b>\n", "</think>", "\n\n", "blah", '{"x": 2}']
USER = {"role": "user", "content": "hi"}


def message_of(server, *, stream, **fields):
    if not stream:
        return server.chat(**fields).json()["choices"][0]["message"]
    message = {}
    for chunk in server.chat_stream(**fields):
        for key, text in chunk["choices"][0]["delta"].items():
            message[key] = message.get(key, "") + text
    return message


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("constrained", [False, True])
def test_reasoning_is_free_and_the_answer_is_valid(serve, stream, constrained):
    server = serve(THINKING, reasoning_format="think", engine_config=AS_SCRIPTED)
    fields = {"response_format": WANTED} if constrained else {}
    message = message_of(server, stream=stream, max_tokens=60, temperature=0, **fields)
    assert message["reasoning_content"] == "First { then </b>"
    if constrained:
        assert json.loads(message["content"])["x"] in (1, 2)
    else:
        assert message["content"] == 'blah{"x": 2}'


@pytest.mark.parametrize("stream", [False, True])
def test_without_reasoning_there_is_only_content(serve, stream):
    server = serve(['{"x": 2}'], reasoning_format="think", engine_config=AS_SCRIPTED)
    message = message_of(
        server, stream=stream, response_format=WANTED, max_tokens=60, temperature=0
    )
    assert "reasoning_content" not in message
    assert json.loads(message["content"])["x"] in (1, 2)


@pytest.mark.parametrize("stream", [False, True])
def test_reasoning_that_the_prompt_has_begun_goes_on(serve, stream):
    server = serve(THINKING[1:], reasoning_format="think", engine_config=AS_SCRIPTED)
    fields = {
        "messages": [USER, {"role": "assistant", "content": "<think>"}],
        "continue_final_message": True,
        "add_generation_prompt": False,
        "response_format": WANTED,
        "max_tokens": 60,
        "temperature": 0,
    }
    message = message_of(server, stream=stream, **fields)
    assert message["reasoning_content"] == "First { then </b>"
    assert json.loads(message["content"])["x"] in (1, 2)


def test_reasoning_that_the_prompt_has_closed_does_not_come_again(serve):
    server = serve(THINKING, reasoning_format="think", engine_config=AS_SCRIPTED)
    fields = {
        "messages": [USER, {"role": "assistant", "content": "<think>\n\n</think>"}],
        "continue_final_message": True,
        "add_generation_prompt": False,
    }
    message = message_of(server, stream=False, response_format=WANTED, max_tokens=60, **fields)
    assert "reasoning_content" not in message
    assert json.loads(message["content"])["x"] in (1, 2)


def test_reasoning_tokens_are_counted(serve):
    server = serve(THINKING, reasoning_format="think", engine_config=AS_SCRIPTED)
    usage = server.chat().json()["usage"]
    details = usage["completion_tokens_details"]
    assert 3 <= details["reasoning_tokens"] <= 6 < usage["completion_tokens"]


def test_effort_that_a_model_cannot_follow_is_a_warning(serve):
    server = serve(["ok"])
    assert "warnings" not in server.chat(reasoning_effort="none").json()
    (warning,) = server.chat(reasoning_effort="high").json()["warnings"]
    assert warning["param"] == "reasoning_effort"


def test_an_unknown_format_is_refused_at_the_start(serve):
    with pytest.raises(Exception, match="available: think"):
        serve(["ok"], reasoning_format="ponder")

"""Bodies that are wrong somewhere get an error of their API that names the place, never a 5xx."""

from __future__ import annotations

import copy

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

MESSAGES = {
    "model": "m",
    "max_tokens": 3,
    "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "x"},
                {"type": "text", "text": "t"},
                {"type": "tool_use", "id": "1", "name": "f", "input": {"a": 1}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "1", "content": "r", "is_error": True}
            ],
        },
    ],
    "tools": [{"name": "f", "input_schema": {"type": "object", "properties": {"a": {}}}}],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    "stop_sequences": ["x"],
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 5,
    "stream": False,
    "thinking": {"type": "disabled"},
    "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}},
    "cache_salt": "s",
    "priority": 1,
    "ramet": {"program_id": "p", "steps_to_next_use": 1},
}
RESPONSES = {
    "model": "m",
    "max_output_tokens": 60,
    "instructions": "s",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "message", "role": "assistant", "content": "t"},
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": '{"a": 1}'},
        {"type": "function_call_output", "call_id": "1", "output": "r"},
    ],
    "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True}],
    "tool_choice": {"type": "function", "name": "f"},
    "parallel_tool_calls": False,
    "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}},
    "reasoning": {"effort": "none"},
    "include": ["message.output_text.logprobs"],
    "top_logprobs": 1,
    "metadata": {"a": "b"},
    "store": True,
    "stream": True,
    "stream_options": {"include_obfuscation": False},
    "seed": 1,
    "temperature": 0.5,
}

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["auto", "text", "object", "tool", "message", "user", "json_schema"])
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)


def places(value, path=()):
    """The paths of everything inside a JSON value."""
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, each in inner:
        yield (*path, key)
        yield from places(each, (*path, key))


@st.composite
def changed(draw, body):
    """A body with one to three places replaced, removed or added to."""
    body = copy.deepcopy(body)
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(sorted(places(body), key=repr)))
        holder = body
        for key in path[:-1]:
            holder = holder[key]
        match draw(st.sampled_from(["replace", "remove", "add"])):
            case "remove":
                del holder[path[-1]]
            case "add" if isinstance(holder, dict):
                holder[draw(st.text(min_size=1, max_size=6))] = draw(values)
            case _:
                holder[path[-1]] = draw(values)
        if not body:
            break
    return body


@pytest.fixture(scope="module")
def server():
    from ramet.runtime.testing.server import scripted_server

    with scripted_server([["x"]]) as server:
        yield server


def check(server, path, body):
    answer = server.http.post(path, json=body)
    assert answer.status_code < 500, (body, answer.text)
    if answer.status_code != 200:
        assert answer.json()["error"]["message"]
    assert server.engine.error is None


FEW = settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@given(body=changed(MESSAGES))
@FEW
def test_messages(server, body):
    check(server, "/v1/messages", body)


@given(body=changed(RESPONSES))
@FEW
def test_responses(server, body):
    check(server, "/v1/responses", body)


@pytest.mark.parametrize(
    ("path", "body"), [("/v1/messages", MESSAGES), ("/v1/responses", RESPONSES)]
)
def test_the_bodies_that_are_changed_are_right(server, path, body):
    answer = server.http.post(path, json=body)
    assert answer.status_code == 200, answer.text

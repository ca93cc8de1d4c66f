"""A grammar that turns out too complex while text is generated is the client's fault."""

from __future__ import annotations

import json

import pytest

from ramet.runtime.testing.scripted_model import Script

LAST = 30
AMBIGUOUS = "\n".join(
    [
        'root ::= "ok " r0',
        *(f'r{k} ::= r{k + 1} | r{k + 1} r{k + 1} | "a"' for k in range(LAST)),
        f'r{LAST} ::= "b"',
    ]
)

LIMITS = {"max_tokens": 30}
REFUSAL = {
    "message": "guided_grammar: the text has too many readings",
    "type": "invalid_request_error",
    "param": "guided_grammar",
    "code": "grammar_too_complex",
}


@pytest.fixture
def server(serve):
    return serve(Script(["ok ", *"aaaaaaaaaaaaaaaaaaaaaa"]))


def test_the_field_is_refused(server):
    body = {"prompt": "x", "guided_grammar": AMBIGUOUS, **LIMITS}
    answer = server.http.post("/v1/completions", json=body)
    assert (answer.status_code, answer.json()["error"]) == (400, REFUSAL)


def test_a_stream_ends_with_the_refusal_of_the_field(server):
    messages = [{"role": "user", "content": "x"}]
    body = {"messages": messages, "guided_grammar": AMBIGUOUS, "stream": True, **LIMITS}
    answer = server.http.post("/v1/chat/completions", json=body)
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line]
    events = [json.loads(line) for line in lines if line != "[DONE]"]
    deltas = [event["choices"][0]["delta"] for event in events[:-1]]
    assert "".join(delta.get("content", "") for delta in deltas).startswith("ok")
    assert events[-1]["error"] == REFUSAL

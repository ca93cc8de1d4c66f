"""What a client can make long is done where other clients' streams don't wait for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from ramet.runtime.api.off_loop import run_off_loop
from ramet.runtime.server.anthropic import conversation as anthropic_conversation
from ramet.runtime.server.http import body as http
from ramet.runtime.server.openai.chat.bodies import Message
from ramet.runtime.server.openai.responses import conversation as responses_conversation
from ramet.runtime.testing.server import RunningServer
from ramet.runtime.tokenizer import Tokenizer
from ramet.runtime.tokenizer.chat_template import ChatTemplate

LOOP = "ramet-test-server"
TURNS = [{"role": ("user", "assistant")[i % 2], "content": "hi"} for i in range(2001)]

CALLS = {
    "/v1/chat/completions": {"messages": TURNS},
    "/v1/messages": {"messages": TURNS, "max_tokens": 1},
    "/v1/messages/count_tokens": {"messages": TURNS},
    "/v1/responses": {"input": [{"type": "message", **turn} for turn in TURNS]},
    "/v1/responses/input_tokens": {"input": [{"type": "message", **turn} for turn in TURNS]},
    "/tokenize": {"messages": TURNS},
    "/v1/completions": {"prompt": ["hi " * 5000] * 6},
    "/v1/embeddings": {"input": ["hi " * 5000] * 6},
    "/detokenize": {"tokens": [5] * 40_000},
}


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> dict[str, set[str]]:
    """Which threads have done what of a body's work, by the work's name."""
    seen: dict[str, set[str]] = {}

    def note(owner: object, name: str) -> None:
        done = getattr(owner, name)

        def noting(*args: object, **kwargs: object) -> object:
            seen.setdefault(name, set()).add(threading.current_thread().name)
            return done(*args, **kwargs)

        monkeypatch.setattr(owner, name, noting)

    note(http, "_validated")
    note(Message, "for_template")
    note(anthropic_conversation, "_Turns")
    note(responses_conversation, "plain_text")
    note(ChatTemplate, "encode")
    note(Tokenizer, "encode")
    note(Tokenizer, "decode")
    return seen


@pytest.mark.parametrize("path", CALLS)
def test_a_long_body_is_taken_in_beside_the_event_loop(
    serve: Callable[..., RunningServer], workers: dict[str, set[str]], path: str
) -> None:
    server = serve(["ok"], model_options={"max_context_len": 1 << 20, "num_pages": 1 << 13})
    workers.clear()
    answer = server.http.post(path, json={"model": "m", **CALLS[path]})
    assert answer.status_code == 200, answer.text
    assert "_validated" in workers
    on_loop = {work for work, threads in workers.items() if LOOP in threads}
    if path != "/detokenize":
        on_loop.discard("decode")  # of the prompt's last tokens
    assert not on_loop


def test_a_short_one_is_not_handed_over(
    serve: Callable[..., RunningServer], workers: dict[str, set[str]]
) -> None:
    server = serve(["ok"])
    workers.clear()
    assert server.chat().status_code == 200
    assert workers["_validated"] == workers["for_template"] == {LOOP}


def test_a_fault_of_a_long_body_is_told_as_of_a_short_one(ok_server: RunningServer) -> None:
    wrong = {**TURNS[1], "role": "nobody"}
    answer = ok_server.http.post(
        "/v1/chat/completions", json={"model": "m", "messages": [*TURNS, wrong, *TURNS]}
    )
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == f"messages[{len(TURNS)}].role"
    answer = ok_server.http.post("/v1/chat/completions", json={"messages": TURNS * 60})
    assert answer.json()["error"]["code"] == "context_length_exceeded"


def test_what_long_work_raises_is_raised_here() -> None:
    def fail() -> None:
        raise KeyError(threading.current_thread().name)

    for is_long in (False, True):
        with pytest.raises(KeyError) as caught:
            asyncio.run(run_off_loop(fail, is_long=is_long))
        here = threading.current_thread().name
        assert (caught.value.args[0] == here) != is_long

"""What a client can make long is done where other clients' streams don't wait for it."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections.abc import Callable

import pytest
from fastapi import Request

from ramet.runtime.api.errors import RequestAbortedError
from ramet.runtime.api.off_loop import client_has_gone, run_off_loop
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
    note(ChatTemplate, "render")
    note(Tokenizer, "encode")
    note(Tokenizer, "encode_pieces")
    note(Tokenizer, "decode")
    return seen


@pytest.mark.parametrize("path", CALLS)
def test_a_long_body_is_read_off_the_event_loop(
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


def test_a_fault_of_a_long_body_is_reported_as_of_a_short_one(ok_server: RunningServer) -> None:
    wrong = {**TURNS[1], "role": "nobody"}
    answer = ok_server.http.post(
        "/v1/chat/completions", json={"model": "m", "messages": [*TURNS, wrong, *TURNS]}
    )
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == f"messages[{len(TURNS)}].role"
    answer = ok_server.http.post("/v1/chat/completions", json={"messages": TURNS * 60})
    assert answer.json()["error"]["code"] == "context_length_exceeded"


def test_a_text_that_no_context_holds_is_not_tokenised(
    ok_server: RunningServer, workers: dict[str, set[str]]
) -> None:
    workers.clear()
    text = "a" * 3_000_000
    for path, body in {
        "/v1/chat/completions": {"messages": [{"role": "user", "content": text}]},
        "/v1/messages": {"messages": [{"role": "user", "content": text}], "max_tokens": 1},
        "/v1/responses": {"input": text},
        "/v1/completions": {"prompt": text},
        "/v1/embeddings": {"input": text},
        "/tokenize": {"prompt": text},
    }.items():
        answer = ok_server.http.post(path, json={"model": "m", **body})
        assert answer.status_code == 400, answer.text
        assert re.search(r"\d+ tokens of at most \d+ bytes; the prompt has", answer.text)
    assert "encode" not in workers
    assert "encode_pieces" not in workers


def test_work_for_a_client_that_has_gone_is_not_started() -> None:
    async def check() -> None:
        client_has_gone.set(lambda: True)
        with pytest.raises(RequestAbortedError):
            await run_off_loop(lambda: pytest.fail("started"), is_long=True)

    asyncio.run(check())


def test_the_server_knows_which_clients_have_gone(
    serve: Callable[..., RunningServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    began, checked = threading.Event(), threading.Event()
    gone: list[bool] = []

    async def first(request: Request, work: Callable[[], object]) -> object:
        has_gone = client_has_gone.get()
        gone.append(has_gone())
        began.set()
        while not has_gone():
            await asyncio.sleep(0.01)
        gone.append(True)
        checked.set()
        return work()

    server = serve(["ok"])
    monkeypatch.setattr(http, "run_for_body", first)
    body = b"{}"
    head = b"POST /tokenize HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    url = server.http.base_url
    with socket.create_connection((url.host, url.port)) as client:
        client.sendall(head + b"content-length: %d\r\n\r\n" % len(body) + body)
        assert began.wait(30)
    assert checked.wait(30)
    assert gone == [False, True]


def test_what_long_work_raises_is_raised_here() -> None:
    def fail() -> None:
        raise KeyError(threading.current_thread().name)

    for is_long in (False, True):
        with pytest.raises(KeyError) as caught:
            asyncio.run(run_off_loop(fail, is_long=is_long))
        here = threading.current_thread().name
        assert (caught.value.args[0] == here) != is_long

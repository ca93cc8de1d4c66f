"""Clients that close only their sending side get their answers; absent ones are noticed."""

from __future__ import annotations

import json
import socket

import pytest

from ramet.runtime.testing.scripted_model import Script

WORDS = Script(["word "], repeat=True)
SLOW = {"step_delay_s": 0.01}


def raw(path="/v1/completions", version="1.1", **fields) -> bytes:
    data = json.dumps({"model": "m", "prompt": "x", **fields}).encode()
    head = f"POST {path} HTTP/{version}\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(data)}\r\n\r\n".encode() + data


def half_closed(server, request: bytes) -> bytes:
    """Everything that a client gets which has nothing more to send."""
    with socket.create_connection(("127.0.0.1", server.http_server.port), timeout=30) as client:
        client.sendall(request)
        client.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: client.recv(65536), b""))


def test_a_quick_answer_is_all_that_is_sent(ok_server):
    assert ok_server.chat().status_code == 200  # what the first call loads is loaded
    answer = half_closed(ok_server, raw())
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"connection: close\r\n" in answer
    assert json.loads(answer.split(b"\r\n\r\n")[1])["choices"][0]["text"] == "ok"


@pytest.mark.parametrize("stream", [False, True])
def test_a_slow_answer_comes_whole(serve, stream):
    server = serve(WORDS, model_options=SLOW)
    answer = half_closed(server, raw(max_tokens=60, stream=stream, n=2))
    assert answer.count(b"HTTP/1.1 200 OK") == 1
    assert answer.count(b"word ") == 120
    if not stream:  # nothing was sent before the end but interim responses
        assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert json.loads(answer.split(b"\r\n\r\n")[-1])["usage"]["completion_tokens"] == 120


def test_requests_behind_each_other_are_all_answered(serve):
    server = serve(WORDS, model_options=SLOW)
    answer = half_closed(server, raw(max_tokens=20) * 3)
    assert answer.count(b"HTTP/1.1 200 OK") == 3
    assert answer.count(b"connection: close") == 1


@pytest.mark.parametrize("end", [b"GET /version HTTP/1.1\r\nhost:", raw()[:-3]])
def test_a_request_that_is_cut_ends_the_connection(serve, wait_until, end):
    server = serve(WORDS, model_options=SLOW)
    assert half_closed(server, raw(max_tokens=5000) + end) == b""
    wait_until(lambda: server.num_live() == 0)


@pytest.mark.parametrize("stream", [False, True])
def test_a_half_closed_client_that_leaves_is_noticed(serve, wait_until, stream):
    server = serve(WORDS, model_options=SLOW)
    client = socket.create_connection(("127.0.0.1", server.http_server.port), timeout=30)
    client.sendall(raw(max_tokens=6000, stream=stream))
    client.shutdown(socket.SHUT_WR)
    wait_until(lambda: server.num_live() == 1)
    client.recv(4)
    client.close()
    wait_until(lambda: server.num_live() == 0)


def test_in_http_1_0_a_closed_sending_side_is_the_end(serve, wait_until):
    server = serve(WORDS, model_options=SLOW)
    assert half_closed(server, raw(version="1.0", max_tokens=6000)) == b""
    wait_until(lambda: server.num_live() == 0)

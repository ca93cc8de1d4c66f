"""Clients that begin a request and don't end it; and those that take their time elsewhere."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable

import pytest

from ramet.runtime.testing.scripted_model import Script
from ramet.runtime.testing.server import RunningServer

TIMEOUT_S = 0.3

Serve = Callable[..., RunningServer]


def raw(path: str = "/v1/chat/completions", **fields: object) -> bytes:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(data)}\r\n\r\n".encode() + data


def connected(server: RunningServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.http_server.port), timeout=20)


def to_the_end(client: socket.socket) -> bytes:
    return b"".join(iter(lambda: client.recv(65536), b""))


WHOLE = raw()
HALVES = {
    "half a line": b"POST /v1/ch",
    "half a head": WHOLE[:60],
    "no body": WHOLE[: WHOLE.index(b"\r\n\r\n") + 4],
    "half a body": WHOLE[:-10],
    "half a chunk": WHOLE[: WHOLE.index(b"content-length")]
    + b"transfer-encoding: chunked\r\n\r\n20\r\n{",
}


@pytest.mark.parametrize("half", HALVES.values(), ids=list(HALVES))
@pytest.mark.parametrize("before", [b"", WHOLE], ids=["first", "second"])
def test_half_a_request_is_answered_and_its_connection_ends(
    serve: Serve, half: bytes, before: bytes
) -> None:
    server = serve(["ok"], receive_timeout_s=TIMEOUT_S)
    with connected(server) as client:
        client.sendall(before + half)
        head, _, body = to_the_end(client).rpartition(b"\r\n\r\n")
    assert head.count(b"HTTP/1.1 200 ") == (1 if before else 0)
    assert b"HTTP/1.1 408 Request Timeout\r\n" in head
    assert json.loads(body)["error"]["code"] == "request_timeout"
    assert server.num_live() == 0
    assert server.chat().status_code == 200


def test_a_request_that_drips_is_ended_too(serve: Serve) -> None:
    server = serve(["ok"], receive_timeout_s=TIMEOUT_S)
    ended = threading.Event()

    def drip(client: socket.socket) -> None:
        for at in range(len(WHOLE) - 1):  # its last byte never comes
            try:
                client.sendall(WHOLE[at : at + 1])
            except OSError:
                return
            if ended.wait(0.05):
                return

    with connected(server) as client:
        dripping = threading.Thread(target=drip, args=(client,))
        dripping.start()
        try:
            assert client.recv(100).startswith(b"HTTP/1.1 408 ")
        finally:
            ended.set()
            dripping.join()


def test_each_api_words_it_its_own_way(serve: Serve) -> None:
    server = serve(["ok"], receive_timeout_s=TIMEOUT_S)
    with connected(server) as client:
        client.sendall(raw("/v1/messages")[:-5])
        body = json.loads(to_the_end(client).rpartition(b"\r\n\r\n")[2])
    assert body["error"]["type"] == "timeout_error"


def test_a_connection_that_says_nothing_ends_without_a_word(serve: Serve) -> None:
    server = serve(["ok"], receive_timeout_s=TIMEOUT_S)
    with connected(server) as client:
        assert to_the_end(client) == b""


def test_a_body_that_was_answered_early_is_not_awaited_forever(serve: Serve) -> None:
    server = serve(["ok"], receive_timeout_s=TIMEOUT_S, max_body_bytes=100)
    with connected(server) as client:
        client.sendall(raw(user="x" * 1000)[:-10])
        answer = to_the_end(client)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b" 408 " not in answer


def test_who_idles_between_requests_or_is_answered_slowly_has_time(serve: Serve) -> None:
    slow = Script(["word "] * 100, when="slow")
    server = serve(
        slow, Script(["ok"]), receive_timeout_s=0.5, model_options={"step_delay_s": 0.01}
    )
    with connected(server) as client:
        client.sendall(WHOLE)
        assert client.recv(65536).startswith(b"HTTP/1.1 200 ")
        time.sleep(0.7)  # idle
        long = raw(messages=[{"role": "user", "content": "slow"}], stream=True)
        client.sendall(long + WHOLE[:-10])  # what comes behind it need not hurry meanwhile
        answer = b""
        while b"data: [DONE]" not in answer:
            piece = client.recv(65536)
            assert piece, answer
            answer += piece
        assert answer.count(b"word ") == 100
        client.sendall(WHOLE[-10:])
        assert client.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_a_body_may_come_in_pieces(serve: Serve) -> None:
    server = serve(["ok"], receive_timeout_s=10.0)
    with connected(server) as client:
        for _ in range(2):
            for piece in (WHOLE[:40], WHOLE[40:-10], WHOLE[-10:]):
                client.sendall(piece)
                time.sleep(0.02)
            assert client.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_blank_lines_do_not_hold_an_idle_connection(serve: Serve) -> None:
    server = serve(["ok"], receive_timeout_s=TIMEOUT_S)
    with connected(server) as client:
        client.sendall(WHOLE)
        assert client.recv(65536).startswith(b"HTTP/1.1 200 ")
        client.sendall(b"\r\n")
        assert to_the_end(client) == b""

"""Requests that are sent behind others on one connection, clients that leave, endless heads."""

from __future__ import annotations

import contextlib
import json
import socket

import pytest

from ramet.runtime.testing.scripted_model import Script


def raw(**fields):
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}
    data = json.dumps(body).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
    head += "content-type: application/json\r\n"
    return f"{head}content-length: {len(data)}\r\n\r\n".encode() + data


def connected(server):
    return socket.create_connection(("127.0.0.1", server.http_server.port), timeout=10)


def test_answers_come_in_order(serve):
    server = serve(Script(["one"], when="1"), Script(["two"], when="2"), Script(["three"]))
    contents = ["1", "2", "3", "2", "1"]
    requests = [raw(messages=[{"role": "user", "content": each}]) for each in contents]
    end = b"GET /version HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    with connected(server) as client:
        client.sendall(b"".join([*requests, end]))
        answers = b"".join(iter(lambda: client.recv(65536), b"")).split(b"HTTP/1.1 200 OK")
    texts = [json.loads(each.split(b"\r\n\r\n")[1]) for each in answers[1:-1]]
    said = [each["choices"][0]["message"]["content"] for each in texts]
    assert said == ["one", "two", "three", "two", "one"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("last", [raw(), raw() * 2, b"BAD\r\n\r\n"])
def test_a_client_that_leaves_takes_what_runs_with_it(serve, wait_until, caplog, stream, last):
    server = serve(Script(["word "], repeat=True), model_options={"step_delay_s": 0.005})
    client = connected(server)
    client.sendall(raw(stream=stream, max_tokens=3000))
    wait_until(lambda: server.num_live() == 1)
    client.sendall(last)
    if not last.startswith(b"BAD"):  # that closes the connection
        wait_until(lambda: server.http.get("/health").status_code == 200)
        client.close()
    wait_until(lambda: server.num_live() == 0)
    client.close()
    assert server.chat(max_tokens=1).status_code == 200
    assert "Traceback" not in caplog.text
    assert "unexpected" not in caplog.text


ENDLESS = {
    "a line": b"GET /" + b"a" * 1_000_000,
    "a name": b"GET / HTTP/1.1\r\n" + b"a" * 1_000_000,
    "a value": b"GET / HTTP/1.1\r\na: " + b"a" * 1_000_000,
    "headers": b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200_000,
    "trailers": raw()[: raw().index(b"content-length")]
    + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
    + b"a: b\r\n" * 200_000,
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_a_head_without_an_end_ends_the_connection(ok_server, kind):
    with connected(ok_server) as client:
        # The server may close before all is sent, or before its answer is read.
        with contextlib.suppress(ConnectionError):
            client.sendall(ENDLESS[kind])
            assert client.recv(100).startswith(b"HTTP/1.1 400 ")
        with contextlib.suppress(ConnectionError):
            while client.recv(65536):
                pass
    assert ok_server.chat().status_code == 200


def test_what_comes_in_pieces_may_be_large(ok_server):
    large = raw(messages=[{"role": "user", "content": "hi " * 300}], metadata={"a": "b" * 500})
    with connected(ok_server) as client:
        for _ in range(80):
            client.sendall(large)
            client.sendall(large[:300])
            client.sendall(large[300:])
        end = b"GET /version HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
        client.sendall(end)
        answers = b"".join(iter(lambda: client.recv(65536), b""))
    assert answers.count(b"HTTP/1.1 200 OK") == 161
    body = json.dumps({"text": "a" * 90_000, "response_format": {"type": "json_object"}}).encode()
    head = (
        b"POST /v1/grammar/check HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    )
    with connected(ok_server) as client:
        client.sendall(head + b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n")
        for at in range(0, len(body), 100):
            piece = body[at : at + 100]
            client.sendall(f"{len(piece):x};note=1\r\n".encode() + piece + b"\r\n")
        client.sendall(b"0\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 200 ")

"""Requests that are sent behind others on one connection, and clients that leave them there."""

from __future__ import annotations

import json
import socket

import pytest

from ramet.runtime.model.scripted import Script


def raw(**fields):
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}
    data = json.dumps(body).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(data)}\r\n\r\n".encode() + data


def connected(server):
    return socket.create_connection(("127.0.0.1", server.http_server.port), timeout=10)


def test_answers_come_in_order(serve):
    server = serve(Script(["one"], when="1"), Script(["two"], when="2"), Script(["three"]))
    contents = ["1", "2", "3", "2", "1"]
    requests = [raw(messages=[{"role": "user", "content": each}]) for each in contents]
    end = b"GET /version HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
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

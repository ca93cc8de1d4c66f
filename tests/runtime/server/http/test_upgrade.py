"""Clients that would rather speak another protocol are answered in HTTP/1.1."""

from __future__ import annotations

import json
import socket

import pytest

BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
OFFERS = {
    "HTTP/2": b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAM\r\n",
    "a web socket": b"connection: upgrade\r\nupgrade: websocket\r\n",
}
FRAMES = {
    "length": (b"content-length: %d\r\n" % len(BODY), BODY),
    "chunks": (b"transfer-encoding: chunked\r\n", b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)),
}


@pytest.mark.parametrize("pieces", [1, 2, 9])
@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("offer", OFFERS)
def test_a_body_behind_an_offer_is_read(ok_server, offer: str, frame: str, pieces: int) -> None:
    length, body = FRAMES[frame]
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
    head += b"content-type: application/json\r\n"
    data = 2 * (head + OFFERS[offer] + length + b"\r\n" + body)  # the second behind the first
    size = -(-len(data) // pieces)
    address = ("127.0.0.1", ok_server.http_server.port)
    with socket.create_connection(address, timeout=20) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(0, len(data), size):
            client.sendall(data[at : at + size])
        answer = b""
        while answer.count(b'"content":"ok"') < 2:
            piece = client.recv(65536)
            assert piece, answer
            answer += piece
    assert answer.count(b"HTTP/1.1 200 ") == 2
    assert answer.count(b"HTTP/1.1 ") == 2


def test_what_asks_for_a_tunnel_is_no_request(ok_server) -> None:
    with socket.create_connection(("127.0.0.1", ok_server.http_server.port), timeout=20) as client:
        client.sendall(b"CONNECT x:443 HTTP/1.1\r\nhost: x:443\r\n\r\n")
        assert client.recv(65536).startswith(b"HTTP/1.1 400 ")

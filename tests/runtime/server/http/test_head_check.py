"""Which hosts and origins may call a local server, and which codings are read."""

from __future__ import annotations

import json
import socket

import pytest

from ramet.runtime.testing.scripted_model import Script


def status(server, head: str) -> int:
    with socket.create_connection(("127.0.0.1", server.http_server.port), timeout=20) as client:
        client.sendall(head.encode() + b"\r\n")
        return int(client.recv(65536).split()[1])


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", 200),
        ("LOCALHOST:1", 200),
        ("127.0.0.1:8000", 200),
        ("[::1]:8000", 200),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("evil.example:80@localhost", 200),  # its host is localhost
        ("localhost@evil.example", 403),
        ("[", 403),
        ("", 403),
    ],
)
def test_a_local_server_is_called_by_names_of_its_machine(serve, host, expected):
    assert status(serve(), f"GET /version HTTP/1.1\r\nhost: {host}\r\n") == expected


def test_further_names_are_allowed_by_the_operator(serve):
    server = serve(allowed_hosts=("Box.lan",))
    assert status(server, "GET /version HTTP/1.1\r\nhost: box.lan:8000\r\n") == 200
    assert status(server, "GET /version HTTP/1.1\r\nhost: other.lan\r\n") == 403


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("http://localhost:3000", 200),
        ("https://page.example", 200),
        ("https://evil.example", 403),
        ("null", 403),
    ],
)
def test_pages_of_other_sites_are_refused(serve, origin, expected):
    server = serve(cors_origins=("https://page.example",))
    assert server.http.get("/version", headers={"origin": origin}).status_code == expected


def test_a_request_has_one_host(serve):
    server = serve()
    two = "host: localhost\r\nhost: localhost\r\n"
    assert status(server, f"GET /version HTTP/1.1\r\n{two}") == 400
    assert status(server, "GET /version HTTP/1.1\r\n") == 400
    assert status(server, "GET /version HTTP/1.0\r\n") == 200


def test_compressed_bodies_are_refused(serve):
    server = serve()
    headers = {"content-encoding": "gzip", "content-type": "application/json"}
    answer = server.http.post("/v1/completions", content=b"\x1f\x8b", headers=headers)
    assert answer.status_code == 415
    assert answer.json()["error"]["code"] == "unsupported_encoding"
    gzip = "host: localhost\r\ntransfer-encoding: gzip, chunked\r\n"
    assert status(server, f"GET /version HTTP/1.1\r\n{gzip}") == 400


def test_errors_quote_no_more_than_a_few_kilobytes(serve):
    answer = serve(Script(["x"])).complete(prompt="x", **{"a" * 1_000_000: 1})
    assert answer.status_code == 400
    assert len(answer.content) < 20_000
    answer = serve(Script(["x"])).http.post(
        "/v1/completions", json={"model": "m" * 1_000_000, "prompt": "x"}
    )
    assert answer.status_code == 404
    assert len(answer.content) < 20_000


def test_the_documentation_needs_a_key_where_keys_are_set(serve, tmp_path):
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"tenants": [{"name": "a", "keys": ["sk-a"]}]}))
    server = serve(api_keys_file=keys)
    assert server.http.get("/openapi.json").status_code == 401
    answer = server.http.get("/openapi.json", headers={"authorization": "Bearer sk-a"})
    assert answer.status_code == 200
    assert serve().http.get("/openapi.json").status_code == 200
    # The page that shows it holds nothing by itself.
    assert server.http.get("/docs").status_code == 200

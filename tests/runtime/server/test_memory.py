"""Each part of the server's memory is counted, and refuses by name when it is full."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import socket
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ramet.runtime.engine import Engine, EngineConfig
from ramet.runtime.engine.memory_plan import MemoryPlan, plan_memory
from ramet.runtime.engine.process import EngineProcess
from ramet.runtime.testing.scripted_model import Script, ScriptedModel
from ramet.runtime.testing.scripted_tokenizer import scripted_tokenizer
from ramet.runtime.testing.server import RunningServer, running_server, text_of, wait_until

LARGE = "x" * 100_000
"""A token; systems buffer several megabytes for a connection."""


def small_engine(sizes: dict[str, int]) -> Engine:
    """An engine whose memory has parts of these sizes; an answer is 300 large tokens."""
    config = EngineConfig(seed=0, max_num_seqs=8)
    tokenizer = scripted_tokenizer(LARGE)
    plan: MemoryPlan = dataclasses.replace(plan_memory(config), **sizes)
    model = ScriptedModel(tokenizer, [Script([LARGE] * 300)])
    return Engine(model, tokenizer, config, model_name="m", memory=plan)


@contextlib.contextmanager
def small_server(config: dict[str, Any] | None = None, **sizes: int) -> Iterator[RunningServer]:
    with small_engine(sizes) as engine, running_server(engine, **config or {}) as server:
        yield server


def memory(server: RunningServer, part: str, name: str = "ramet:memory_bytes") -> float:
    return server.metric(name, part=part)


def half_a_body(server: RunningServer, size: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", server.http_server.port), timeout=20)
    head = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    client.sendall(f"{head}content-length: {size}\r\n\r\n".encode() + b" " * (size - 10))
    return client


def test_bodies_are_refused_while_others_fill_their_memory() -> None:
    with small_server(bodies=400_000) as server:
        with half_a_body(server, 90_000):
            wait_until(lambda: memory(server, "bodies") > 350_000)
            refused = server.complete(prompt="x " * 10_000)
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "memory_full"
        assert "memory for bodies" in refused.json()["error"]["message"]
        assert refused.headers["retry-after"] == "1"
        wait_until(lambda: memory(server, "bodies") == 0)
        assert server.complete(prompt="x " * 1000, max_tokens=1).status_code == 200
        too_large = server.complete(prompt="x " * 60_000)
        assert too_large.status_code == 413
        assert memory(server, "bodies", "ramet:memory_refusals_total") == 1


def test_prompts_are_refused_while_others_fill_their_memory() -> None:
    factory = partial(small_engine, {"prompts": 64_000})
    with (
        EngineProcess(factory, scripted_tokenizer(LARGE), model_name="m") as engine,
        running_server(engine) as server,
    ):
        calls = [server.complete(prompt="hi", n=n, max_tokens=1) for n in (4, 64)]
        assert [call.status_code for call in calls] == [200, 503]
        assert "memory for prompts" in calls[1].json()["error"]["message"]
        wait_until(lambda: memory(server, "prompts") == 0)
        assert server.complete(prompt="hi", max_tokens=1).status_code == 200


def unread_call(server: RunningServer, **fields: Any) -> socket.socket:
    """A connection with a call whose answer isn't read."""
    client = socket.create_connection(("127.0.0.1", server.http_server.port), timeout=60)
    data = json.dumps({"model": "m", "prompt": "hi", "stream": True, **fields}).encode()
    head = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
    head += f"content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    client.sendall(head.encode() + data)
    return client


def test_a_client_that_does_not_read_is_dropped_and_one_that_does_is_not() -> None:
    with small_server(answers=8_000_000) as server:
        client = unread_call(server, n=8)
        wait_until(lambda: memory(server, "answers", "ramet:memory_refusals_total") > 0)
        chunks = server.stream("/v1/completions", prompt="hi")
        assert text_of(chunks) == LARGE * 300
        received = b"".join(iter(lambda: client.recv(1 << 20), b""))
        client.close()
        assert b'"code":"slow_reader"' in received
        assert b"bytes unread" in received
        wait_until(lambda: server.num_live() == 0 and memory(server, "answers") == 0)


def test_a_client_that_takes_nothing_is_disconnected(caplog: pytest.LogCaptureFixture) -> None:
    with small_server({"send_timeout_s": 0.3}) as server:
        client = unread_call(server, n=8)
        wait_until(lambda: "slow_reader: closed the connection" in caplog.text)
        wait_until(lambda: server.num_live() == 0 and memory(server, "answers") == 0)
        received = 0
        with client, contextlib.suppress(ConnectionResetError):
            while part := client.recv(1 << 20):
                received += len(part)
        assert received < 8 * 300 * len(LARGE)


def test_stored_responses_of_all_tenants_share_one_part(tmp_path: Any) -> None:
    keys = tmp_path / "keys.json"
    tenants = [{"name": name, "keys": [f"key-{name}"], "admin": True} for name in "ab"]
    keys.write_text(json.dumps({"tenants": tenants}))
    with small_server({"api_keys_file": keys}, responses=8_000_000) as server:

        def store(tenant: str) -> str:
            headers = {"authorization": f"Bearer key-{tenant}"}
            body = {"model": "m", "input": "x " * 500, "max_output_tokens": 16}
            answer = server.http.post("/v1/responses", json=body, headers=headers)
            return str(answer.json()["id"])

        def is_stored(tenant: str, response_id: str) -> bool:
            headers = {"authorization": f"Bearer key-{tenant}"}
            found = server.http.get(f"/v1/responses/{response_id}", headers=headers)
            return found.status_code == 200

        first = store("b")
        greedy = [store("a") for _ in range(6)]
        assert is_stored("b", first)
        assert [is_stored("a", greedy[0]), is_stored("a", greedy[-1])] == [False, True]
        text = server.http.get("/metrics", headers={"authorization": "Bearer key-a"}).text
        samples = [s for each in text_string_to_metric_families(text) for s in each.samples]
        used = {s.labels["part"]: s.value for s in samples if s.name == "ramet:memory_bytes"}
        assert 0 < used["responses"] <= 8_000_000


def test_every_part_and_process_has_a_metric() -> None:
    with small_server() as server:
        for part in ("processes", "weights", "kv", "grammars", "prompts", "bodies", "answers"):
            name = "ramet:memory_limit_bytes"
            families = text_string_to_metric_families(server.http.get("/metrics").text)
            assert part in {
                s.labels["part"] for each in families for s in each.samples if s.name == name
            }
        for process in ("server", "engine"):
            assert server.metric("ramet:resident_memory_bytes", process=process) > 1 << 20

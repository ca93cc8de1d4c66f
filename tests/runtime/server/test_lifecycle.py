"""Calls end when their clients leave, the server ends gracefully, and faults are reported."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

from ramet.runtime.api.errors import EngineDeadError
from ramet.runtime.engine.config import EngineConfig
from ramet.runtime.testing.scripted_model import Script

ENDLESS = Script(["word "], repeat=True)
HI = [{"role": "user", "content": "hi"}]

CALLS = [
    ("/v1/completions", {"prompt": "x", "max_tokens": 5000}),
    ("/v1/chat/completions", {"messages": HI, "max_tokens": 5000}),
    ("/v1/messages", {"model": "m", "messages": HI, "max_tokens": 5000}),
    ("/v1/responses", {"model": "m", "input": "x", "max_output_tokens": 5000}),
]


@pytest.mark.parametrize(("path", "body"), CALLS)
def test_a_stream_whose_reader_leaves_is_aborted(serve, wait_until, path, body):
    server = serve(ENDLESS, model_options={"step_delay_s": 0.002})
    with server.http.stream("POST", path, json={**body, "stream": True}) as answer:
        chunks = answer.iter_bytes()  # it closes the connection when it is collected
        next(chunks)
        assert server.num_live() == 1
    wait_until(lambda: server.num_live() == 0)
    server.engine.check()
    assert server.chat(max_tokens=2).status_code == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        *CALLS,
        ("/v1/completions", {"prompt": "x", "max_tokens": 5000, "n": 3}),
        ("/v1/completions", {"prompt": "x", "max_tokens": 5000, "n": 2, "stream": True}),
    ],
)
def test_a_call_whose_client_leaves_before_the_answer_is_aborted(serve, wait_until, path, body):
    server = serve(ENDLESS, model_options={"step_delay_s": 0.002})
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(data)}\r\n"
    with socket.create_connection(("127.0.0.1", server.http_server.port)) as connection:
        connection.sendall(head.encode() + b"content-type: application/json\r\n\r\n" + data)
        wait_until(lambda: server.num_live() == body.get("n", 1))
    wait_until(lambda: server.num_live() == 0)
    pages = server.engine.stats()
    assert pages.num_held_pages == 0


def test_a_call_can_be_aborted_by_its_id(serve, wait_until):
    server = serve(ENDLESS, model_options={"step_delay_s": 0.002})
    answers = []
    call = threading.Thread(
        target=lambda: answers.append(server.complete(prompt="x", request_id="mine"))
    )
    call.start()
    wait_until(lambda: server.num_live() == 1)
    other = server.http.post("/v1/abort", json={"request_id": "other"})
    assert other.status_code == 404
    assert server.http.post("/v1/abort", json={"request_id": "mine"}).json()["aborted"] is True
    call.join(10)
    assert answers[0].status_code == 499
    assert answers[0].json()["error"]["code"] == "aborted"
    assert server.http.post("/v1/abort", json={"request_id": "mine"}).status_code == 404


def test_an_id_that_is_running_cannot_be_used_again(serve, wait_until):
    server = serve(ENDLESS, model_options={"step_delay_s": 0.002})
    fields = {"json": {"prompt": "x", "stream": True, "request_id": "twin"}}
    with server.http.stream("POST", "/v1/completions", **fields) as answer:
        chunks = answer.iter_bytes()
        next(chunks)
        again = httpx.post(f"{server.url}/v1/completions", **fields)
        assert again.status_code == 400
        assert again.json()["error"]["param"] == "request_id"
    wait_until(lambda: server.num_live() == 0)


def test_an_error_after_the_stream_began_is_an_event_and_an_end(serve):
    steps = []

    def fail_later(batch):
        steps.append(batch)
        if len(steps) > 30:
            raise RuntimeError("a fault of the runner, with a secret in it")

    server = serve(ENDLESS, model_options={"before_step": fail_later})
    with server.http.stream(
        "POST", "/v1/completions", json={"prompt": "x", "stream": True}
    ) as answer:
        events = [event for event in answer.read().decode().split("\n\n") if event]
    assert answer.status_code == 200
    error = json.loads(events[-1].removeprefix("data: "))["error"]
    assert error["type"] == "server_error"
    assert "data: [DONE]" not in events
    steps.clear()
    assert server.complete(prompt="y", max_tokens=2).status_code == 200


def test_health_and_readiness(serve):
    server = serve(["ok"])
    assert server.http.get("/health").status_code == 200
    assert server.http.get("/ready").status_code == 200
    assert server.http.get("/version").json()["version"]
    models = server.http.get("/v1/models").json()["data"]
    assert [card["id"] for card in models] == ["m"]
    assert server.http.get("/v1/models/m").json()["max_model_len"] == 8192
    assert server.http.get("/v1/models/other").status_code == 404


def test_a_dead_engine_says_so(serve):
    def die(batch):
        raise EngineDeadError("the device is gone")

    server = serve(["ok"], model_options={"before_step": die})
    assert server.http.get("/health").status_code == 200
    for _ in range(2):  # the call that kills it, and the next
        answer = server.chat()
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "engine_dead"
    assert server.http.get("/health").status_code == 503
    assert server.http.get("/ready").status_code == 503


def test_metrics_count_what_happened(serve):
    server = serve(["a", "b"])
    server.chat()
    server.chat(max_tokens=1)
    server.complete(prompt="")
    assert server.metric("vllm:request_success_total", finished_reason="stop") == 1
    assert server.metric("vllm:request_success_total", finished_reason="length") == 1
    assert server.metric("vllm:generation_tokens_total") == 4
    assert server.metric("vllm:num_requests_running") == 0
    assert server.metric("vllm:time_to_first_token_seconds_count") == 2
    labels = {"path": "/v1/completions", "status": "400"}
    assert server.metric("ramet:http_responses_total", **labels) == 1


def test_metrics_are_in_the_text_format_without_created_series(serve):
    server = serve(["a"])
    server.chat()
    answer = server.http.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "# TYPE vllm:prompt_tokens_total counter\n" in answer.text
    assert "_created" not in answer.text


def test_two_servers_count_by_themselves(serve):
    first, second = serve(["a"]), serve(["b"])
    first.chat()
    assert first.metric("vllm:request_success_total", finished_reason="stop") == 1
    assert second.metric("vllm:request_success_total", finished_reason="stop") == 0


def test_responses_carry_the_clients_request_id_if_it_is_plain(serve):
    server = serve(["ok"])
    same = server.http.get("/health", headers={"x-request-id": "abc-1"})
    assert same.headers["x-request-id"] == "abc-1"
    other = server.http.get("/health", headers={"x-request-id": "a b<c>"})
    assert other.headers["x-request-id"].startswith("req-")


SERVE_SCRIPT = """
import sys
from ramet.runtime.engine import Engine
from ramet.runtime.engine.config import EngineConfig
from ramet.runtime.api.errors import EngineDeadError
from ramet.runtime.testing.scripted_model import Script, ScriptedModel
from ramet.runtime.server.config import ServerConfig
from ramet.runtime.server.main import serve
from ramet.runtime.testing.scripted_tokenizer import scripted_tokenizer

tokenizer = scripted_tokenizer("word ")
model = ScriptedModel(tokenizer, [Script(["word "], repeat=True)], step_delay_s=0.01)
with Engine(model, tokenizer, model_name="m") as engine:
    config = ServerConfig(port=0, grace_period_s=float(sys.argv[1]))
    serve(engine, config, on_started=lambda port: print(port, flush=True))
"""


@pytest.fixture
def serve_process():
    """Starts a server in a process of its own: ``serve_process(grace_s) -> (process, url)``."""
    started = []

    def start(grace_s: float):
        process = subprocess.Popen(
            [sys.executable, "-c", SERVE_SCRIPT, str(grace_s)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        started.append(process)
        return process, f"http://127.0.0.1:{int(process.stdout.readline())}"

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_lets_running_calls_finish_and_takes_no_new_ones(serve_process, number):
    process, url = serve_process(60)
    body = {"prompt": "x", "stream": True, "max_tokens": 120}
    with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=60) as answer:
        chunks = answer.iter_text()
        text = next(chunks)
        process.send_signal(number)
        time.sleep(0.2)
        ready = httpx.get(f"{url}/ready")
        assert (ready.status_code, ready.json()["error"]["code"]) == (503, "shutting_down")
        refused = httpx.post(f"{url}/v1/completions", json={"prompt": "x"})
        assert refused.status_code == 503
        assert "retry-after" in refused.headers
        text += "".join(chunks)
    assert text.endswith("data: [DONE]\n\n")
    assert text.count('"text":"word "') + text.count("word word") >= 1
    assert process.wait(20) == 0


def test_after_the_grace_period_what_still_runs_gets_an_error(serve_process):
    process, url = serve_process(0.3)
    body = {"prompt": "x", "stream": True, "max_tokens": 8000}
    with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=60) as answer:
        chunks = answer.iter_text()
        text = next(chunks)
        process.send_signal(signal.SIGTERM)
        text += "".join(chunks)
    last = [event for event in text.split("\n\n") if event][-1]
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "shutting_down"
    assert process.wait(20) == 0


def test_the_dashboard_asks_only_for_series_that_exist(serve):
    dashboard = Path(__file__).parents[3] / "docs" / "grafana-dashboard.json"
    panels = json.loads(dashboard.read_text())["panels"]
    asked = {
        name
        for panel in panels
        for target in panel["targets"]
        for name in re.findall(r"(?:vllm|ramet):\w+", target["expr"])
    }
    lines = serve(["ok"]).http.get("/metrics").text.splitlines()
    kinds = dict(line.split(" ")[2:4] for line in lines if line.startswith("# TYPE"))
    offered = {name + "_bucket" if kind == "histogram" else name for name, kind in kinds.items()}
    assert asked
    assert asked <= offered


def test_a_full_queue_says_when_to_come_back(serve, wait_until):
    limits = EngineConfig(max_num_seqs=1, max_waiting=1)
    slow = {"step_delay_s": 0.002}
    server = serve(ENDLESS, engine_config=limits, model_options=slow)
    body = {"prompt": "x", "max_tokens": 5000, "stream": True}
    with server.http.stream("POST", "/v1/completions", json=body) as answer:
        chunks = answer.iter_bytes()
        next(chunks)
        # One runs and one may wait, so of two more the second is refused, whole or in part.
        refused = server.complete(prompt="y", n=2, max_tokens=1)
        assert refused.status_code == 429
        assert refused.json()["error"]["type"] == "rate_limit_error"
        assert int(refused.headers["retry-after"]) >= 1
    wait_until(lambda: server.num_live() == 0)
    assert server.complete(prompt="y", max_tokens=1).status_code == 200


def test_what_the_page_pool_can_never_hold_is_refused_immediately(serve):
    server = serve(["ok"], model_options={"num_pages": 4})
    answer = server.complete(prompt="x" * 200, max_tokens=1)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert server.complete(prompt="x").status_code == 200


def test_the_last_call_that_outgrows_the_pages_ends_cleanly(serve):
    server = serve(ENDLESS, model_options={"num_pages": 4})
    answer = server.complete(prompt="x").json()
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["total_tokens"] <= 64


def test_a_client_that_leaves_inside_its_body_is_no_fault_of_the_server(serve, wait_until, caplog):
    server = serve(["ok"])
    head = b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n"
    with socket.create_connection(("127.0.0.1", server.http_server.port)) as connection:
        connection.sendall(head + b"content-type: application/json\r\n\r\n{")
        time.sleep(0.1)
    labels = {"path": "/v1/completions", "status": "499"}
    wait_until(lambda: server.metric("ramet:http_responses_total", **labels) == 1)
    assert not caplog.records
    assert server.chat().status_code == 200


def test_a_wrong_method_is_answered_with_the_right_one(serve):
    answer = serve(["ok"]).http.get("/v1/completions")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "POST"
    assert answer.json()["error"]["code"] == "http_405"


@pytest.mark.parametrize("words", [[""], ["a", ""], ["w"] * 257, ["w" * 5000]])
def test_bad_words_that_cannot_be_kept_are_refused(ok_server, words):
    answer = ok_server.complete(prompt="x", bad_words=words)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "bad_words"

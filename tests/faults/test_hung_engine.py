"""The engine's process hangs while it serves: the server says so, and ends when asked to."""

from __future__ import annotations

import os
import signal
import threading
from functools import partial

import httpx

from ramet.runtime.engine.process import EngineProcess
from ramet.runtime.testing.scripted_engine import scripted_engine
from ramet.runtime.testing.scripted_model import Script
from ramet.runtime.testing.scripted_tokenizer import scripted_tokenizer
from ramet.runtime.testing.server import running_server, wait_until


def test_a_hung_engine_blocks_nothing_and_is_replaced():
    factory = partial(scripted_engine, [Script(["word "], repeat=True)])
    with (
        EngineProcess(factory, scripted_tokenizer(), model_name="m", timeout_s=8) as engine,
        running_server(engine) as server,
    ):
        pid = engine.process_id
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        outcomes: list[tuple[int, str]] = []

        def call(**fields: object) -> None:
            body = {"model": "m", "max_tokens": 2, **fields}
            answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60)
            outcomes.append((answer.status_code, answer.json()["error"]["code"]))

        calls = [threading.Thread(target=call, kwargs={"prompt": "a " * 3000}) for _ in range(20)]
        calls.append(threading.Thread(target=call, kwargs={"prompt": "a", "deadline_s": 0.5}))
        for thread in calls:
            thread.start()
        wait_until(lambda: server.http.get("/health").status_code == 503)
        health = server.http.get("/health").json()["error"]["code"]
        assert health in ("engine_unresponsive", "engine_dead")
        assert server.http.get("/metrics").status_code == 200
        for thread in calls:
            thread.join(60)
        assert len(outcomes) == 21
        assert (504, "deadline_exceeded") in outcomes
        assert {code for _, code in outcomes} == {"engine_unresponsive", "deadline_exceeded"}
        wait_until(lambda: server.http.get("/health").status_code == 200)
        assert engine.process_id != pid
        assert server.chat(max_tokens=2).status_code == 200

"""The engine's process is killed while it serves: everybody is told, and it serves again."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from functools import partial

import httpx

from ramet.runtime.engine.process import EngineProcess
from ramet.runtime.testing.scripted_engine import scripted_engine
from ramet.runtime.testing.scripted_model import Script
from ramet.runtime.testing.scripted_tokenizer import scripted_tokenizer
from ramet.runtime.testing.server import running_server, wait_until


def test_a_killed_engine_loses_no_call_silently_and_serves_again():
    factory = partial(scripted_engine, [Script(["word "], repeat=True)])
    with (
        EngineProcess(factory, scripted_tokenizer(), model_name="m") as engine,
        running_server(engine) as server,
    ):
        assert server.chat(max_tokens=2).status_code == 200
        outcomes = []

        def call(stream: bool) -> None:
            body = {"prompt": "x", "max_tokens": 6000, "stream": stream}
            answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60)
            last = answer.text.strip().split("\n\n")[-1].removeprefix("data: ")
            outcomes.append((answer.status_code, json.loads(last)["error"]["code"]))

        calls = [threading.Thread(target=call, args=(i % 2 == 0,)) for i in range(6)]
        for thread in calls:
            thread.start()
        wait_until(lambda: engine.stats().num_running == 6)
        first = engine.process_id
        assert server.metric("ramet:engine_up") == 1
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: engine.error is not None or engine.process_id != first)
        assert server.http.get("/metrics").status_code == 200
        for thread in calls:
            thread.join(30)
        assert len(outcomes) == 6
        assert {code for _, code in outcomes} == {"engine_dead"}
        assert {status for status, _ in outcomes} <= {200, 503}  # 200: it had begun to stream
        began = time.monotonic()
        wait_until(lambda: server.http.get("/health").status_code == 200)
        assert server.chat(max_tokens=2).status_code == 200
        assert time.monotonic() - began < 60
        assert engine.process_id != first

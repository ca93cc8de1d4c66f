"""Clients of the real model leave in the midst of many choices: nothing of theirs stays."""

from __future__ import annotations

import random
import threading

import httpx
import pytest

from ramet.runtime.api.errors import ModelLoadError
from ramet.runtime.engine import Engine, EngineConfig
from ramet.runtime.model.files.locate import locate_model
from ramet.runtime.testing.server import running_server, wait_until

PLAIN = {"prompt": "A river is", "temperature": 0, "max_tokens": 8}
NUM_CLIENTS = 6


@pytest.fixture(scope="module")
def engine():
    try:
        path = locate_model("smollm2")
    except ModelLoadError as error:
        pytest.skip(str(error))
    config = EngineConfig(device="cpu", num_threads=1, cache_bytes=48 << 20, seed=0)
    with Engine.from_model(path, config) as engine:
        yield engine


@pytest.mark.parametrize("stream", [True, False])
def test_choices_end_with_their_client(engine, stream):
    with running_server(engine) as server:
        before = server.http.post("/v1/completions", json=PLAIN).json()["choices"]

        def leave(number: int) -> None:
            rng = random.Random(number)
            body = {
                "prompt": "Once upon a time" * rng.randint(1, 20),
                "n": rng.choice([2, 5, 12]),
                "max_tokens": 2000,
                "stream": stream,
                "seed": number,
            }
            for _ in range(3):
                try:
                    with httpx.stream(
                        "POST",
                        f"{server.url}/v1/completions",
                        json=body,
                        timeout=rng.uniform(0.05, 1.0),
                        verify=False,
                    ) as answer:
                        for count, _ in enumerate(answer.iter_bytes()):
                            if count == rng.randint(1, 10):
                                break
                except httpx.TimeoutException:
                    pass

        clients = [threading.Thread(target=leave, args=(i,)) for i in range(NUM_CLIENTS)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        wait_until(lambda: server.num_live() == 0)
        engine.check()
        stats = engine.stats()
        assert stats.num_held_pages == 0
        assert stats.num_free_pages + stats.num_cached_pages == stats.num_pages
        assert server.http.post("/v1/completions", json=PLAIN).json()["choices"] == before

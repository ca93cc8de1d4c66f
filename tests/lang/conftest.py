"""Shared by the language's tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from ramet.runtime.engine import Engine, EngineConfig
from ramet.runtime.server.config import ServerConfig
from ramet.runtime.server.main import HttpServer
from ramet.runtime.testing.scripted_model import Script, ScriptedModel
from ramet.runtime.testing.scripted_tokenizer import scripted_tokenizer


@pytest.fixture
def scripted_engine() -> Iterator[Callable[..., Engine]]:
    """Real engines over a ScriptedModel, by its scripts; closed, and checked, with the test."""
    engines: list[Engine] = []

    def make(*scripts: Script, config: EngineConfig | None = None) -> Engine:
        tokenizer = scripted_tokenizer()
        engines.append(Engine(ScriptedModel(tokenizer, scripts), tokenizer, config, model_name="m"))
        return engines[-1]

    yield make
    for engine in engines:
        engine.check()
        assert engine.stats().num_running == 0
        engine.close()


@pytest.fixture
def served(scripted_engine: Callable[..., Engine]) -> Iterator[Callable[..., str]]:
    """The address of a Ramet server over a ScriptedModel, by its scripts."""
    running: list[tuple[HttpServer, threading.Thread]] = []

    def make(*scripts: Script) -> str:
        server = HttpServer(scripted_engine(*scripts), ServerConfig(port=0))
        thread = threading.Thread(target=server.run)
        thread.start()
        running.append((server, thread))
        deadline = time.monotonic() + 60
        while not server.started:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        return f"http://127.0.0.1:{server.port}"

    yield make
    for server, thread in running:
        server.stop()
        thread.join(10)

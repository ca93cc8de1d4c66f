"""A server over a scripted model, on loopback and a free port."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import openai
import pytest

from ramet.runtime.engine import Engine
from ramet.runtime.engine_config import EngineConfig
from ramet.runtime.model.scripted import Script, ScriptedModel
from ramet.runtime.server import ServerConfig
from ramet.runtime.server.main import HttpServer
from ramet.runtime.tokenizer.scripted import scripted_tokenizer


@dataclass
class Running:
    """A server that is running, and ways to talk to it."""

    server: HttpServer
    engine: Engine
    http: httpx.Client

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.port}"

    def openai(self, **options: Any) -> openai.OpenAI:
        options = {"api_key": "none", "max_retries": 0, **options}
        return openai.OpenAI(base_url=f"{self.url}/v1", **options)

    def chat(self, content: str = "hi", **fields: Any) -> httpx.Response:
        body = {"model": "m", "messages": [{"role": "user", "content": content}], **fields}
        return self.http.post("/v1/chat/completions", json=body)

    def complete(self, **fields: Any) -> httpx.Response:
        return self.http.post("/v1/completions", json={"model": "m", **fields})

    def stream(self, path: str, **fields: Any) -> list[dict[str, Any]]:
        """The JSON chunks of a stream; it must end with ``[DONE]``."""
        with self.http.stream(
            "POST", path, json={"model": "m", "stream": True, **fields}
        ) as answer:
            answer.read()
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"].startswith("text/event-stream")
        return events_of(answer.text)

    def chat_stream(self, content: str = "hi", **fields: Any) -> list[dict[str, Any]]:
        messages = [{"role": "user", "content": content}]
        return self.stream("/v1/chat/completions", **{"messages": messages, **fields})

    def num_running(self) -> int:
        stats = self.engine.stats()
        return stats.num_running + stats.num_waiting + stats.num_compiling


def events_of(text: str) -> list[dict[str, Any]]:
    """The JSON chunks of a stream's text, without the last, which must be ``[DONE]``."""
    events = [event for event in text.split("\n\n") if event]
    assert all(event.startswith("data: ") for event in events)
    assert events[-1] == "data: [DONE]"
    return [json.loads(event.removeprefix("data: ")) for event in events[:-1]]


def text_of(chunks: list[dict[str, Any]], index: int = 0) -> str:
    """The text that one choice's chunks join to, in either API."""
    choices = [c for chunk in chunks for c in chunk["choices"] if c["index"] == index]
    return "".join(c["delta"].get("content", "") if "delta" in c else c["text"] for c in choices)


Serve = Callable[..., Running]


@pytest.fixture(name="wait_until")
def _wait_until() -> Callable[..., None]:
    return wait_until


@pytest.fixture(name="text_of")
def _text_of() -> Callable[..., str]:
    return text_of


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts servers: ``serve(scripts, pieces=..., config...)``; all end with the test."""
    with contextlib.ExitStack() as stack:

        def start(
            *scripts: Script | Sequence[str | bytes | int],
            pieces: Sequence[str | bytes] = (),
            step_delay_s: float = 0.0,
            **config: Any,
        ) -> Running:
            return stack.enter_context(
                running_server(scripts, pieces, step_delay_s=step_delay_s, **config)
            )

        yield start


@contextlib.contextmanager
def running_server(
    scripts: Sequence[Script | Sequence[str | bytes | int]],
    pieces: Sequence[str | bytes],
    *,
    step_delay_s: float,
    model_options: dict[str, Any] | None = None,
    engine_config: EngineConfig | None = None,
    **config: Any,
) -> Iterator[Running]:
    all_scripts = [s if isinstance(s, Script) else Script(s) for s in scripts]
    tokenizer = scripted_tokenizer(*_pieces(all_scripts), *pieces)
    model = ScriptedModel(tokenizer, all_scripts, step_delay_s=step_delay_s, **model_options or {})
    engine = Engine(model, tokenizer, engine_config, model_name="m")
    server = HttpServer(engine, ServerConfig(port=0, **config))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_until(lambda: server.started, 30)
        with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=90) as client:
            yield Running(server, engine, client)
    finally:
        server.stop()
        thread.join(20)
        engine.check()
        engine.close()
        assert not thread.is_alive()


def _pieces(scripts: Sequence[Script]) -> list[str | bytes]:
    """Every piece of the scripts as a token of its own, so that a script says how text is cut."""
    return [piece for script in scripts for piece in script.pieces if not isinstance(piece, int)]


def wait_until(condition: Callable[[], Any], timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.002)

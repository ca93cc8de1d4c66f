"""Runs a server on a scripted model for tests: a real socket, no model, milliseconds per call.

::

    with scripted_server([["Hello", " world"]]) as server:
        answer = server.chat("hi")
        assert answer.json()["choices"][0]["message"]["content"] == "Hello world"
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from ramet.runtime.engine import Engine
from ramet.runtime.engine.config import EngineConfig
from ramet.runtime.engine.process import EngineProcess
from ramet.runtime.server.config import ServerConfig
from ramet.runtime.server.extension import Extension
from ramet.runtime.server.main import HttpServer
from ramet.runtime.testing.scripted_model import Script, ScriptedModel
from ramet.runtime.testing.scripted_tokenizer import scripted_tokenizer
from ramet.runtime.tokenizer import Tokenizer

Pieces = Sequence[str | bytes | int]


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A running server and helpers to call it.

    Attributes:
        engine: its engine.
        http: a client whose base URL is the server's.
        http_server: the server itself, to stop it.
    """

    engine: Engine | EngineProcess
    http: httpx.Client
    http_server: HttpServer

    @property
    def url(self) -> str:
        """The server's base URL, without a path."""
        return f"http://127.0.0.1:{self.http_server.port}"

    def chat(self, content: str = "hi", **fields: Any) -> httpx.Response:
        """One user message to chat completions; ``fields`` are more of the body."""
        body = {"model": "m", "messages": [{"role": "user", "content": content}], **fields}
        return self.http.post("/v1/chat/completions", json=body)

    def complete(self, **fields: Any) -> httpx.Response:
        """A body to completions."""
        return self.http.post("/v1/completions", json={"model": "m", **fields})

    def stream(self, path: str, **fields: Any) -> list[dict[str, Any]]:
        """The JSON chunks of a stream in OpenAI's form, which must end with ``[DONE]``."""
        answer = self.http.post(path, json={"model": "m", "stream": True, **fields})
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = [event for event in answer.text.split("\n\n") if event]
        assert events[-1] == "data: [DONE]", events[-1]
        return [json.loads(event.removeprefix("data: ")) for event in events[:-1]]

    def chat_stream(self, content: str = "hi", **fields: Any) -> list[dict[str, Any]]:
        """The chunks of ``chat``."""
        messages = [{"role": "user", "content": content}]
        return self.stream("/v1/chat/completions", **{"messages": messages, **fields})

    def metric(self, name: str, **labels: str) -> float:
        """The value of a series of ``/metrics`` with these labels and the model's; 0 if absent."""
        labels = {"model_name": "m"} | labels
        families = text_string_to_metric_families(self.http.get("/metrics").text)
        samples = (sample for family in families for sample in family.samples)
        return next((s.value for s in samples if (s.name, s.labels) == (name, labels)), 0.0)

    def num_live(self) -> int:
        """Requests that the engine has in any state."""
        stats = self.engine.stats()
        return stats.num_running + stats.num_waiting + stats.num_compiling


@contextlib.contextmanager
def scripted_server(
    scripts: Sequence[Script | Pieces],
    *,
    tokenizer: Tokenizer | None = None,
    engine_config: EngineConfig | None = None,
    model_options: Mapping[str, Any] | None = None,
    extensions: Sequence[Extension] = (),
    **config: Any,
) -> Iterator[RunningServer]:
    """Runs a server in a thread, on loopback and a free port, until the block ends.

    Args:
        scripts: the model's outputs; see ``ScriptedModel``. Each piece is one token.
        tokenizer: None: a tiny one in which the scripts' pieces are tokens.
        engine_config: the engine's; None: the default with a fixed seed.
        model_options: more arguments of ``ScriptedModel``.
        extensions: additional routes.
        config: fields of ``ServerConfig``.
    """
    said = [each if isinstance(each, Script) else Script(each) for each in scripts]
    if tokenizer is None:
        pieces = [piece for each in said for piece in each.pieces if not isinstance(piece, int)]
        tokenizer = scripted_tokenizer(*pieces)
    model = ScriptedModel(tokenizer, said, **model_options or {})
    engine_config = engine_config or EngineConfig(seed=0)
    with (
        Engine(model, tokenizer, engine_config, model_name="m") as engine,
        running_server(engine, extensions, **config) as server,
    ):
        yield server


@contextlib.contextmanager
def running_server(
    engine: Engine | EngineProcess, extensions: Sequence[Extension] = (), **config: Any
) -> Iterator[RunningServer]:
    """Serves an engine from a thread; checks its invariants at the end."""
    server = HttpServer(engine, ServerConfig(port=0, **config), extensions=extensions)
    thread = threading.Thread(target=server.run, name="ramet-test-server")
    thread.start()
    try:
        wait_until(lambda: server.started)
        # Without verify=False, httpx reads all certificates: a third of a server's start.
        url = f"http://127.0.0.1:{server.port}"
        with httpx.Client(base_url=url, timeout=90, verify=False) as client:
            yield RunningServer(engine, client, server)
    finally:
        server.stop()
        thread.join()
        if engine.error is None:
            engine.check()


def wait_until(condition: Callable[[], Any], timeout_s: float = 30.0) -> None:
    """Waits until ``condition`` holds, or raises ``TimeoutError``."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the condition did not hold within {timeout_s} s")
        time.sleep(0.002)


def text_of(chunks: Sequence[Mapping[str, Any]], index: int = 0) -> str:
    """The text that one choice's chunks join to, of chat or completions."""
    choices = [c for chunk in chunks for c in chunk["choices"] if c["index"] == index]
    return "".join(c["delta"].get("content", "") if "delta" in c else c["text"] for c in choices)

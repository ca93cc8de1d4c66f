"""The server under attack: three tenants, an engine process, and a route that checks both.

    python benchmarks/attack/victim.py FOLDER PORT MODEL

It is started by the attack, which puts the keys and the clock into ``FOLDER``.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

from clock import install_clock
from fastapi import APIRouter, Depends

from ramet.lang.serving import PROGRAMS
from ramet.runtime.api.log import configure_logging
from ramet.runtime.api.request import Request
from ramet.runtime.engine import Engine
from ramet.runtime.engine.config import EngineConfig
from ramet.runtime.engine.process import EngineProcess
from ramet.runtime.engine.process.worker import load_engine
from ramet.runtime.engine.requests.request_stream import RequestStream
from ramet.runtime.model.files.locate import locate_model
from ramet.runtime.model.load import open_model
from ramet.runtime.server.access import Access
from ramet.runtime.server.calls.context import ServerContext
from ramet.runtime.server.config import ServerConfig
from ramet.runtime.server.extension import Extension
from ramet.runtime.server.main import serve
from ramet.runtime.testing.scripted_model import ScriptedModel
from ramet.runtime.testing.scripted_tokenizer import scripted_tokenizer
from ramet.runtime.tokenizer import Tokenizer, read_tokenizer

ENGINE_TIMEOUT_S = 6.0
STEP_DELAY_S = 0.004


class WitnessedEngine(EngineProcess):
    """An engine that knows which of its requests have not ended."""

    def witness(self) -> None:
        self._witnessed: dict[int, RequestStream] = {}
        self._witness_lock = threading.Lock()
        self.num_submitted = 0

    def submit(self, request: Request) -> RequestStream:
        stream = super().submit(request)
        with self._witness_lock:
            self.num_submitted += 1
            self._witnessed[id(stream)] = stream
            if len(self._witnessed) > 1000:
                self._forget_ended()
        return stream

    def unended(self) -> list[str]:
        """The ids of submitted requests whose streams have no last event."""
        with self._witness_lock:
            self._forget_ended()
            return [stream.request_id for stream in self._witnessed.values()]

    def _forget_ended(self) -> None:
        self._witnessed = {k: each for k, each in self._witnessed.items() if not each.ended}


def make_scripted(folder: Path, config: EngineConfig) -> Engine:
    """The engine of the scripted model, in its own process."""
    prepare_process(folder)
    tokenizer = scripted_tokenizer()
    model = ScriptedModel(tokenizer, num_pages=2048, step_delay_s=STEP_DELAY_S)
    return Engine(model, tokenizer, config, model_name="m", fingerprint="attack")


def prepare_process(folder: Path) -> None:
    """The setup of both processes."""
    install_clock(folder / "clock")
    configure_logging("info", "json")


def check_routes(engine: WitnessedEngine, context: ServerContext) -> APIRouter:
    """``GET /attack/check``: what still runs, after the invariants have been checked."""
    router = APIRouter(dependencies=[Depends(context.authenticate_admin)])

    @router.get("/attack/check")
    async def check() -> dict[str, Any]:
        await asyncio.to_thread(engine.check)
        stats = await asyncio.to_thread(engine.stats)
        return {
            "engine_pid": engine.process_id,
            "num_live": stats.num_running + stats.num_waiting + stats.num_compiling,
            "num_held_pages": stats.num_held_pages,
            "num_calls": context.lifecycle.num_calls,
            "num_submitted": engine.num_submitted,
            "unended": engine.unended(),
        }

    return router


def main() -> None:
    folder, port, model = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    prepare_process(folder)
    server_config = ServerConfig(
        port=port,
        served_model_names=("m",),
        api_keys_file=folder / "keys.json",
        receive_timeout_s=5,
        max_body_bytes=4 << 20,
        grace_period_s=2,
    )
    access = Access(server_config)
    config = EngineConfig(
        seed=0,
        engine_timeout_s=ENGINE_TIMEOUT_S,
        grammar_bytes=96 << 20,
        grammar_cache=str(folder / "automata"),
        prefix_store=None if model == "scripted" else str(folder / "prefixes"),
        record_trace=str(folder / "trace.gz"),
        max_waiting=512,
        cache_bytes=128 << 20,
        tenant_weights=access.tenants.weights(),
    )
    tokenizer: Tokenizer
    if model == "scripted":
        factory, tokenizer = partial(make_scripted, folder, config), scripted_tokenizer()
    else:
        path = locate_model(model)
        factory = partial(load_engine, path, config, partial(prepare_process, folder))
        tokenizer = read_tokenizer(open_model(path))
    with WitnessedEngine(factory, tokenizer, model_name="m", timeout_s=ENGINE_TIMEOUT_S) as engine:
        engine.witness()
        serve(
            engine,
            server_config,
            extensions=(PROGRAMS, Extension(partial(check_routes, engine))),
            access=access,
            on_started=lambda _: print("started", flush=True),
        )


if __name__ == "__main__":
    main()

"""The engine's side: makes the engine, hands it the commands that arrive, sends its events."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from ramet.runtime.api.errors import RametError
from ramet.runtime.api.events import Event, Failed, Usage
from ramet.runtime.engine.config import EngineConfig
from ramet.runtime.engine.monitoring.idle_collector import IdleCollector
from ramet.runtime.engine.process.heartbeat import HeartbeatThread
from ramet.runtime.engine.process.messages import (
    Abort,
    Answer,
    Ask,
    Close,
    Command,
    Compile,
    Events,
    Forget,
    Ready,
    Report,
    SetTenantWeights,
    StartFailed,
    Submit,
    UpdateHint,
)

if TYPE_CHECKING:  # the callers' side needs no engine of its own, and starts sooner without
    from ramet.runtime.engine.engine import Engine

_POLL_S = 0.25
_SWITCH_S = 0.0005  # how long a thread that compiles a grammar may keep a step waiting


class Outbox:
    """Sends reports; a step's events as one message. Drops them once the parent has ended."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._events: list[tuple[str, Event]] = []

    def add(self, request_id: str, event: Event) -> None:
        self._events.append((request_id, event))

    def flush(self) -> None:
        if self._events:
            events, self._events = self._events, []
            self.send(Events(events))

    def send(self, report: Report) -> None:
        with self._lock, contextlib.suppress(ConnectionError):  # the main loop ends with it
            self._connection.send(report)


def load_engine(
    path: Path, config: EngineConfig | None, prepare: Callable[[], object] | None = None
) -> Engine:
    """``Engine.from_model``, imported where it runs, after ``prepare``."""
    if prepare is not None:
        prepare()
    from ramet.runtime.engine.engine import Engine

    return Engine.from_model(path, config)


def run_engine(connection: Connection, factory: Callable[[], Engine]) -> None:
    """The process's main function; it ends when asked to, with its parent, or with the engine."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    outbox = Outbox(connection)
    starting = threading.Event()
    starting.set()
    threading.Thread(target=_end_with_parent, args=(starting,), daemon=True).start()
    heartbeat = HeartbeatThread(outbox.send)
    gc.disable()  # hardly anything that a start makes goes again
    try:
        engine = factory()
    except Exception as error:
        outbox.send(StartFailed(error))
        return
    heartbeat.watch(engine.step_s)
    starting.clear()
    collector = IdleCollector()
    collector.start()  # what the engine is made of stays; no collection has to look at it again
    engine.collect_when_idle(collector)
    sys.setswitchinterval(_SWITCH_S)
    engine.add_step_listener(outbox.flush)
    compiling: dict[int, Future[None]] = {}
    try:
        outbox.send(
            Ready(
                engine.vocab_size,
                engine.max_context_len,
                engine.memory_plan,
                engine.summary,
                engine.sampling_defaults,
            )
        )
        while engine.error is None:
            if connection.poll(_POLL_S):
                command: Command = connection.recv()
                if isinstance(command, Close):
                    break
                _obey(command, engine, outbox, compiling)
    except (EOFError, ConnectionError):  # the parent is gone
        pass
    finally:
        died = engine.error is not None
        engine.close()
    if died:
        sys.exit(1)


def _end_with_parent(starting: threading.Event) -> None:
    """Ends this process if its parent ends during the start, which may take long; afterwards the
    closed connection shows the parent's end."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        if starting.is_set():
            os._exit(1)


def _obey(
    command: Command, engine: Engine, outbox: Outbox, compiling: dict[int, Future[None]]
) -> None:
    match command:
        case Submit(request, max_len):
            try:
                engine.submit_to(request, partial(outbox.add, request.request_id), max_len)
            except RametError as refused:
                usage = Usage(prompt_tokens=len(request.prompt_token_ids))
                outbox.send(Events([(request.request_id, Failed(refused, usage))]))
        case Abort(request_id):
            engine.abort(request_id)
        case UpdateHint(update):
            engine.update_hint(update)
        case SetTenantWeights(weights):
            engine.set_tenant_weights(weights)
        case Ask(number, question):
            try:
                outbox.send(Answer(number, getattr(engine, question)()))
            except Exception as error:
                outbox.send(Answer(number, None, error))
        case Compile(number, constraint, scope):
            try:
                compiled = engine.compile(constraint, scope)
            except RametError as refused:
                outbox.send(Answer(number, None, refused))
            else:
                compiling[number] = compiled
                compiled.add_done_callback(partial(_tell, outbox, compiling, number))
        case Forget(number):
            if number in compiling:
                compiling[number].cancel()
        case Close():
            pass


def _tell(
    outbox: Outbox, compiling: dict[int, Future[None]], number: int, done: Future[None]
) -> None:
    compiling.pop(number, None)
    if done.cancelled():
        return
    error = done.exception()
    outbox.send(Answer(number, None, error if isinstance(error, Exception) else None))

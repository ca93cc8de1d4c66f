"""A program that runs on a server: a call of the server, its engine and its run."""

from __future__ import annotations

import dataclasses
import itertools
import time
from typing import Any

from ramet.lang.run.run import Run
from ramet.lang.serving.recent_runs import RecentRuns
from ramet.runtime.api.request import HintUpdate, Request
from ramet.runtime.engine.api import EngineApi, EventStream
from ramet.runtime.engine.monitoring.stats import EngineStats
from ramet.runtime.server.calls.call import Call
from ramet.runtime.server.calls.context import ServerContext
from ramet.runtime.server.calls.engine_requests import scoped_hint
from ramet.runtime.server.calls.in_flight import InFlightLimit
from ramet.runtime.tokenizer import ChatTemplate, Tokenizer

ProgramRun = Run[dict[str, Any]]


class ProgramCall:
    """A call that runs a program.

    Attributes:
        engine: takes the program's requests.
    """

    def __init__(self, context: ServerContext, call: Call, recent: RecentRuns) -> None:
        self._recent = recent
        self.engine = ProgramEngine(context.engine, call, context.config.max_choices)
        self._call = call
        self._metrics = context.metrics
        self._began = time.monotonic()
        self._run: ProgramRun | None = None

    def attach_run(self, run: ProgramRun) -> None:
        """Makes an abort of the call cancel the run."""
        self._run = run
        self._call.on_abort(self._cancel_run)

    def abort(self) -> None:
        """Ends every request of the program within a step."""
        self._call.abort()

    def close(self) -> None:
        """Ends the call and a program that still runs; harmless when repeated."""
        run = self._run
        if run is not None and not run.done:
            self._call.abort()
        self._call.close()
        self._run = None
        if run is None:
            return
        failed = "failed" if run.done and run.error is not None else "completed"
        outcome = failed if self._call.reason is None else "aborted"
        seconds = time.monotonic() - self._began
        self._metrics.record_program(outcome, seconds, len(run.graph.calls()))
        self._recent.add(self._call.tenant.name, self._call.id, run.trace)

    def _cancel_run(self) -> None:
        if self._run is not None and not self._run.done:
            self._run.cancel()


class ProgramEngine:
    """The server's engine for one program: names scoped to its tenant, requests in flight bounded.

    Implements ``GenerationEngine``.
    """

    def __init__(self, engine: EngineApi, call: Call, max_in_flight: int) -> None:
        self._engine = engine
        self._tenant = call.tenant
        self._name = call.name
        self._limit = InFlightLimit(engine.submit, max_in_flight, call.record_node_end)
        self._numbers = itertools.count()

    @property
    def model_name(self) -> str:
        return self._engine.model_name

    @property
    def tokenizer(self) -> Tokenizer:
        return self._engine.tokenizer

    @property
    def chat_template(self) -> ChatTemplate | None:
        return self._engine.chat_template

    def stats(self) -> EngineStats:
        return self._engine.stats()

    def update_hint(self, update: HintUpdate) -> None:
        tenant = self._tenant
        self._engine.update_hint(
            dataclasses.replace(
                update,
                program_id=tenant.scoped(update.program_id),
                cache_salt=tenant.scoped(update.cache_salt),
            )
        )

    def submit(self, request: Request) -> EventStream:
        tenant = self._tenant
        return self._limit.submit(
            dataclasses.replace(
                request,
                cache_salt=tenant.scoped(request.cache_salt),
                tenant=tenant.name,
                hint=scoped_hint(request.hint, tenant) if request.hint else None,
                request_id=f"{self._name}-{next(self._numbers)}",
            )
        )

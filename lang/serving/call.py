"""One program that runs on a server: its place among the server's calls, and its end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

from ramet.lang.run.run import Run
from ramet.lang.serving.engine import ProgramEngine
from ramet.runtime.api.errors import DeadlineExceededError, RametError, RequestAbortedError
from ramet.runtime.api.events import Failed, Finished
from ramet.runtime.api.request import Request
from ramet.runtime.server.calls.context import ServerContext
from ramet.runtime.server.calls.tenants import Tenant
from ramet.runtime.server.observability.trace import Trace

ProgramRun = Run[dict[str, Any]]


class ProgramCall:
    """A program's share of the server while it runs: it counts as one call of its tenant.

    Args:
        trace: is told of the program's requests.
        deadline_s: seconds from now until the program fails; None: it has all the time.

    Attributes:
        engine: takes the program's requests.
        reason: why the program was ended early; None: it wasn't.

    Raises:
        ShuttingDownError, QueueFullError: the program isn't admitted.
        InvalidRequestError: a call with this id is running.
    """

    def __init__(
        self,
        context: ServerContext,
        tenant: Tenant,
        call_id: str,
        trace: Trace,
        *,
        deadline_s: float | None = None,
    ) -> None:
        self.id = call_id
        self.reason: RametError | None = None
        self._context = context
        self._tenant = tenant
        self._trace = trace
        self._name = tenant.scoped(call_id)
        self._began = time.monotonic()
        self._preparing: asyncio.Task[None] | None = None
        self._run: ProgramRun | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self.engine = ProgramEngine(
            context.engine,
            tenant,
            self._name,
            max_at_once=context.config.max_choices,
            on_end=self._note_end,
        )
        context.lifecycle.enter(self._name, self.abort)
        try:
            tenant.enter()
        except BaseException:
            context.lifecycle.leave(self._name)
            raise
        if deadline_s is not None:
            late = DeadlineExceededError("the deadline passed before the program had ended")
            self._timer = asyncio.get_running_loop().call_later(deadline_s, self.abort, late)

    async def prepare(self, work: Coroutine[Any, Any, None]) -> None:
        """Waits for what comes before the run; raises ``reason`` if the call is aborted then."""
        self._preparing = asyncio.ensure_future(work)
        try:
            await self._preparing
        except asyncio.CancelledError:
            if self.reason is None:
                raise
            raise self.reason from None
        finally:
            self._preparing = None

    def runs(self, run: ProgramRun) -> None:
        """Takes the program's run."""
        self._run = run
        if self.reason is not None:
            run.cancel()

    def abort(self, reason: RametError | None = None) -> None:
        """Ends every request of the program within a step; the call fails with ``reason``."""
        self.reason = self.reason or reason or RequestAbortedError("the program was aborted")
        if self._preparing is not None:
            self._preparing.cancel()
        if self._run is not None:
            self._run.cancel()

    def close(self) -> None:
        """Ends the call, and what of the program still runs; harmless when repeated."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._context.lifecycle.leave(self._name)
        self._tenant.leave()
        self._trace.close()
        run = self._run
        if run is None:
            return
        if not run.done:
            self.abort()
        failed = "failed" if run.done and run.error is not None else "completed"
        outcome = failed if self.reason is None else "aborted"
        seconds = time.monotonic() - self._began
        self._context.telemetry.program(outcome, seconds, len(run.graph.calls()))

    def _note_end(self, request: Request, event: Finished | Failed) -> None:
        self._context.telemetry.end(event)
        self._trace.note_node(request, event)
        self._tenant.pay(event.usage.prompt_tokens + event.usage.completion_tokens)

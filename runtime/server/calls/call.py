"""One HTTP call, from its admission to its end: the same for every API and for programs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fastapi import Request as HttpRequest

from ramet.runtime.api.errors import DeadlineExceededError, RametError, RequestAbortedError
from ramet.runtime.api.events import Failed, Finished
from ramet.runtime.api.request import Request
from ramet.runtime.engine.api import EventSource
from ramet.runtime.server.calls.context import ServerContext, tenant_of, trace_of

_ABORTED = "the request was aborted"
_ABANDONED_TIMEOUT_S = 60.0
"""Most time for an aborted request to end, so that it can be counted."""

T = TypeVar("T")


class Call:
    """An admitted call: the server and its tenant count it until it is closed.

    Args:
        call_id: its id for the client, unique among the tenant's running calls.
        deadline_s: seconds after which it is aborted; None: never.

    Attributes:
        name: its id, unique among all tenants' calls.
        reason: why it was aborted; None: it wasn't.

    Raises:
        ShuttingDownError, QueueFullError: the call isn't admitted.
        InvalidRequestError: a call with this id is running.
    """

    def __init__(
        self,
        context: ServerContext,
        http_request: HttpRequest,
        call_id: str,
        *,
        deadline_s: float | None = None,
    ) -> None:
        self.id = call_id
        self.tenant = tenant_of(http_request)
        self.trace = trace_of(http_request)
        self.name = self.tenant.scoped(call_id)
        self.reason: RametError | None = None
        self._context = context
        self._stops: list[Callable[[], object]] = []
        self._is_closed = False
        self._abandoned: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        context.lifecycle.add_call(self.name, self.abort)
        try:
            self.tenant.admit_call()
        except BaseException:
            context.lifecycle.remove_call(self.name)
            raise
        if deadline_s is not None:
            late = DeadlineExceededError("the call's deadline has passed")
            self._timer = asyncio.get_running_loop().call_later(deadline_s, self.abort, late)

    def on_abort(self, stop: Callable[[], object]) -> None:
        """Registers how to stop some of the call's work; stops it now if it is too late."""
        self._stops.append(stop)
        if self.reason is not None:
            stop()

    async def wait_for(self, work: Awaitable[T]) -> T:
        """Awaits work that precedes the call's requests; raises ``reason`` if it is aborted."""
        task = asyncio.ensure_future(work)
        self.on_abort(task.cancel)
        try:
            return await task
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise
            raise self.reason or RequestAbortedError(_ABORTED) from None

    def abort(self, reason: RametError | None = None) -> None:
        """Ends all requests of the call within a step; the call fails with ``reason``."""
        self.reason = self.reason or reason or RequestAbortedError(_ABORTED)
        for stop in self._stops:
            stop()

    def record_end(self, event: Finished | Failed) -> None:
        """Counts one of the call's requests, which has ended."""
        self.trace.record_end(event)
        self._count(event)

    def record_abandoned(self, source: EventSource) -> None:
        """Aborts a request that is read no further, and counts what it has used when it ends."""
        source.abort()
        reading = asyncio.ensure_future(self._read_abandoned(source))
        self._abandoned.add(reading)
        reading.add_done_callback(self._abandoned.discard)

    async def _read_abandoned(self, source: EventSource) -> None:
        with contextlib.suppress(TimeoutError, StopAsyncIteration, RametError):
            async with asyncio.timeout(_ABANDONED_TIMEOUT_S):
                async for event in source:
                    if isinstance(event, Finished | Failed):
                        self._count(event)
                        return

    def record_node_end(self, request: Request, event: Finished | Failed) -> None:
        """Counts one of a program's requests, which has ended."""
        self.trace.record_node_end(request, event)
        self._count(event)

    def close(self) -> None:
        """Stops what still runs and ends the call; harmless when repeated."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for stop in self._stops:
            stop()
        self._context.lifecycle.remove_call(self.name)
        self.tenant.end_call()
        self.trace.close()

    def _count(self, event: Finished | Failed) -> None:
        self._context.metrics.record_end(event)
        if self._context.metering is not None:
            self._context.metering.record_end(self.tenant.name, self.id, event)
        self.tenant.charge_tokens(event.usage.prompt_tokens + event.usage.completion_tokens)

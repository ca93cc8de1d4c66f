"""Bounds how many of a call's requests are in the engine at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from ramet.runtime.api.errors import RequestAbortedError
from ramet.runtime.api.events import Event, Failed, Finished, TextDelta, Usage
from ramet.runtime.api.request import Request
from ramet.runtime.engine.api import EventSource, Submit

OnEnd = Callable[[Request, Finished | Failed], None]


class InFlightLimit:
    """Submits at most ``size`` requests at a time, the next one when another has ended.

    A call of thousands of requests doesn't fill the engine's queue.

    Args:
        on_end: receives each request's last event; for one that is abandoned, an abort.
    """

    def __init__(self, submit: Submit, size: int, on_end: OnEnd | None = None) -> None:
        self._submit = submit
        self._slots = asyncio.Semaphore(size)
        self._on_end = on_end

    def submit(self, request: Request) -> GatedStream:
        """Returns the request's events; it is submitted when they are read and a slot is free."""
        return GatedStream(request, self._submit, self._slots, self._on_end)


class GatedStream:
    """The events of a request that waits for a slot; leaving ``async with`` early aborts it."""

    def __init__(
        self, request: Request, submit: Submit, slots: asyncio.Semaphore, on_end: OnEnd | None
    ) -> None:
        self._request = request
        self._submit = submit
        self._slots = slots
        self._on_end = on_end
        self._source: EventSource | None = None
        self._num_tokens = 0
        self._has_slot = False
        self._is_aborted = False
        self._has_ended = False

    def take(self) -> list[Event]:
        """All events that are ready, without waiting."""
        events = [] if self._source is None else self._source.take()
        for event in events:
            self._observe(event)
        return events

    def abort(self) -> None:
        """Ends the request within a step, or as soon as it gets a slot."""
        self._is_aborted = True
        if self._source is not None:
            self._source.abort()

    async def __aenter__(self) -> GatedStream:
        return self

    async def __aexit__(self, *exception: object) -> None:
        if self._source is not None and not self._has_ended:
            self._source.abort()
            self._observe(self._aborted())
        self._release_slot()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        if self._source is None:
            await self._slots.acquire()
            self._has_slot = True
            if self._is_aborted:
                failed = self._aborted()
                self._observe(failed)
                return failed
            self._source = self._submit(self._request)
        event = await anext(self._source)
        self._observe(event)
        return event

    def _observe(self, event: Event) -> None:
        """Counts tokens; on the last event, reports the end and frees the slot."""
        if isinstance(event, TextDelta):
            self._num_tokens += len(event.tokens)
        elif isinstance(event, Finished | Failed):
            self._has_ended = True
            self._release_slot()
            if self._on_end is not None:
                self._on_end(self._request, event)

    def _release_slot(self) -> None:
        if self._has_slot:
            self._has_slot = False
            self._slots.release()

    def _aborted(self) -> Failed:
        usage = Usage(len(self._request.prompt_token_ids), self._num_tokens)
        return Failed(RequestAbortedError("the request was aborted"), usage)

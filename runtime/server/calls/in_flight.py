"""A call of many requests that has only some of them in the engine at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from ramet.runtime.api.errors import RequestAbortedError
from ramet.runtime.api.events import Event, Failed, Finished, Usage
from ramet.runtime.api.request import Request
from ramet.runtime.engine.api import EventSource, Submit


class Window:
    """Submits up to ``size`` requests, and each further one when another has ended.

    So a call of thousands of requests is in nobody's way in the engine's queue.
    """

    def __init__(self, submit: Submit, size: int) -> None:
        self._submit = submit
        self._room = asyncio.Semaphore(size)

    def __call__(self, request: Request) -> EventSource:
        """The request's events; it is submitted when there is room and somebody reads them."""
        return _Waiting(request, self._submit, self._room)


class _Waiting:
    """An ``EventSource`` that waits for room."""

    def __init__(self, request: Request, submit: Submit, room: asyncio.Semaphore) -> None:
        self._request = request
        self._submit = submit
        self._room = room
        self._source: EventSource | None = None
        self._aborted = False

    def take(self) -> list[Event]:
        return self._noting([] if self._source is None else self._source.take())

    def abort(self) -> None:
        self._aborted = True
        if self._source is not None:
            self._source.abort()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        if self._source is None:
            await self._room.acquire()
            if self._aborted:
                usage = Usage(prompt_tokens=len(self._request.prompt_token_ids))
                failed = Failed(RequestAbortedError("the request was aborted"), usage)
                return self._noting([failed])[0]
            self._source = self._submit(self._request)
        return self._noting([await anext(self._source)])[0]

    def _noting(self, events: list[Event]) -> list[Event]:
        """Makes room once the last event is among them."""
        if events and isinstance(events[-1], Finished | Failed):
            self._room.release()
        return events

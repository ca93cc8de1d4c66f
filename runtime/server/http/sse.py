"""Server-sent events: encoding, and a response that detects disconnects.

https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ramet.runtime.server.http.json_response import json_bytes

DONE = b"data: [DONE]\n\n"


def data_event(value: Any) -> bytes:
    """Encodes an unnamed event with a JSON value."""
    return b"data: " + json_bytes(value) + b"\n\n"


def named_event(name: str, value: Any) -> bytes:
    """Encodes a named event with a JSON value."""
    return b"event: " + name.encode() + b"\ndata: " + json_bytes(value) + b"\n\n"


async def watch_disconnect(receive: Receive, abort: Callable[[], None]) -> None:
    """Calls ``abort`` when the client disconnects. Run it as a task and cancel it at the end."""
    while (await receive())["type"] != "http.disconnect":
        pass
    abort()


class EventStreamResponse(Response):
    """Sends what ``events`` yields; calls ``abort`` on a disconnect and ``close`` at the end.

    Each item is one or more whole events. No middleware between item and socket: at thousands of
    tokens a second this loop is most of the server's work.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncIterator[bytes],
        *,
        abort: Callable[[], None],
        close: Callable[[], None],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.status_code = 200
        self.background = None
        self._events = events
        self._abort = abort
        self._close = close
        self.init_headers(
            {"cache-control": "no-store", "x-accel-buffering": "no", **(headers or {})}
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        watcher = asyncio.create_task(watch_disconnect(receive, self._abort))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async for item in self._events:
                await send({"type": "http.response.body", "body": item, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            watcher.cancel()
            self._close()

"""Sends a call's answer, as a stream or whole, and ends the call with it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Protocol

from fastapi import Request as HttpRequest
from starlette.responses import Response

from ramet.runtime.server.calls.context import field_warnings
from ramet.runtime.server.http.json_response import JsonResponse
from ramet.runtime.server.http.sse import EventStreamResponse, watch_disconnect


class RunningCall(Protocol):
    """The owner that a response ends: ``Call``, or a program around it."""

    def abort(self) -> None:
        """Ends it early."""
        ...

    def close(self) -> None:
        """Ends what still runs; harmless when repeated."""
        ...


async def respond(
    http_request: HttpRequest,
    call: RunningCall,
    *,
    whole: Callable[[], Awaitable[Any]],
    stream: AsyncIterator[bytes] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Answers with ``stream``, or with what ``whole`` makes if that is None.

    The call is aborted if the client disconnects, and closed at the end. A whole answer has the
    ``warnings`` of its body.
    """
    if stream is not None:
        return EventStreamResponse(stream, abort=call.abort, close=call.close, headers=headers)
    try:
        async with abort_on_disconnect(http_request, call):
            answer = await whole()
    finally:
        call.close()
    if isinstance(answer, Response):
        return answer
    return JsonResponse(answer | field_warnings(http_request).fields(), headers=headers)


@contextlib.asynccontextmanager
async def abort_on_disconnect(http_request: HttpRequest, call: RunningCall) -> AsyncIterator[None]:
    """Aborts the call if the client disconnects while the block runs."""
    watcher = asyncio.create_task(watch_disconnect(http_request.receive, call.abort))
    try:
        yield
    finally:
        watcher.cancel()

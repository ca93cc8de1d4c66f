"""Sends a call's answer, as a stream or whole, and ends the call with it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Protocol

from fastapi import Request as HttpRequest
from starlette.responses import Response

from ramet.runtime.server.http.json_response import JsonResponse
from ramet.runtime.server.http.sse import EventStreamResponse, watch_disconnect
from ramet.runtime.server.protocol.field_warnings import FieldWarnings, warning_headers


class RunningCall(Protocol):
    """What a response ends: ``Call``, or a program around it."""

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

    The call is aborted if the client disconnects, and closed at the end. Fields of the body
    that had no effect are named in a header, and in the ``warnings`` of a whole answer.
    """
    warnings: FieldWarnings = http_request.state.field_warnings
    headers = {**(headers or {}), **warning_headers(warnings.found)}
    if stream is not None:
        return EventStreamResponse(stream, abort=call.abort, close=call.close, headers=headers)
    try:
        async with abort_on_disconnect(http_request, call):
            answer = await whole()
    finally:
        call.close()
    if isinstance(answer, Response):
        answer.headers.update(headers)
        return answer
    if warnings.found:
        answer["warnings"] = warnings.shown()
    return JsonResponse(answer, headers=headers)


@contextlib.asynccontextmanager
async def abort_on_disconnect(http_request: HttpRequest, call: RunningCall) -> AsyncIterator[None]:
    """Aborts the call if the client disconnects while the block runs."""
    watcher = asyncio.create_task(watch_disconnect(http_request.receive, call.abort))
    try:
        yield
    finally:
        watcher.cancel()

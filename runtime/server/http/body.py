"""Reads and validates request bodies."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from ramet.runtime.api.errors import (
    InvalidRequestError,
    RequestAbortedError,
    RequestTooLargeError,
)
from ramet.runtime.api.memory import MemoryLease, MemoryPart
from ramet.runtime.api.off_loop import run_off_loop
from ramet.runtime.chat.field_warnings import FieldWarnings
from ramet.runtime.server.protocol.base import invalid_body

Body = TypeVar("Body", bound=BaseModel)
Result = TypeVar("Result")

_INLINE_BYTES = 64 * 1024
"""Largest body that is processed on the event loop: a few milliseconds of work at worst."""

BODY_FACTOR = 4
"""Memory of a body while its call runs, as a multiple of its bytes: raw and parsed."""


class BodyMemory:
    """Gives back what ``read_body`` has counted for a request when its response is complete."""

    def __init__(self, app: ASGIApp, *, part: MemoryPart) -> None:
        self._app = app
        self._part = part

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        lease = MemoryLease(self._part)
        scope["state"] = {**scope.get("state", {}), "body_memory": lease}
        try:
            await self._app(scope, receive, send)
        finally:
            lease.close()


async def read_body(
    request: Request, model: type[Body], max_bytes: int, warnings: FieldWarnings
) -> Body:
    """Reads a JSON body and validates it; fields without effect are added to ``warnings``.

    Raises:
        RequestTooLargeError: more than ``max_bytes``, announced or actual.
        MemoryFullError: the memory for bodies is full.
        InvalidRequestError: not JSON, or not valid for ``model``.
        RequestAbortedError: the client has disconnected.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        # Browsers send other types across origins without a preflight request.
        raise InvalidRequestError(
            f"the content type must be application/json, not {media_type or 'empty'}",
            code="unsupported_media_type",
        )
    announced = request.headers.get("content-length", "0")
    if announced.isdigit() and int(announced) > max_bytes:
        raise _too_large(max_bytes)
    raw = bytearray()
    lease: MemoryLease = request.state.body_memory
    try:
        async for chunk in request.stream():
            lease.take(BODY_FACTOR * len(chunk))
            raw += chunk
            if len(raw) > max_bytes:
                raise _too_large(max_bytes)
    except ClientDisconnect:
        raise RequestAbortedError(
            "the client disconnected before sending all of the body"
        ) from None
    request.state.has_long_body = len(raw) > _INLINE_BYTES
    return await run_for_body(request, lambda: _validated(raw, model, warnings))


async def run_for_body(request: Request, work: Callable[[], Result]) -> Result:
    """Runs ``work`` on a request's body, in a thread if the body is large."""
    return await run_off_loop(work, is_long=request.state.has_long_body)


def _validated(raw: bytearray, model: type[Body], warnings: FieldWarnings) -> Body:
    try:
        return model.model_validate_json(raw, context=warnings)
    except ValidationError as error:
        raise invalid_body(error) from None
    except RecursionError:
        raise InvalidRequestError("the body is nested too deeply", code="invalid_json") from None


def _too_large(max_bytes: int) -> RequestTooLargeError:
    return RequestTooLargeError(f"the body exceeds the limit of {max_bytes} bytes")

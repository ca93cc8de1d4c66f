"""Bodies in, errors out: the only places that read a request's bytes or word an error."""

from __future__ import annotations

import logging
import math
import uuid
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from ramet.grammars.errors import ConstraintError, GrammarTooComplexError
from ramet.runtime.api.errors import (
    InvalidConstraintError,
    InvalidRequestError,
    NotFoundError,
    QueueFullError,
    RametError,
    RequestAbortedError,
    RequestTooLargeError,
)
from ramet.runtime.server.http.json_bytes import json_bytes
from ramet.runtime.server.http.off_loop import off_loop
from ramet.runtime.server.protocol.base import THREAD_UNSUPPORTED, invalid_body

logger = logging.getLogger("ramet.server")

Body = TypeVar("Body", bound=BaseModel)
Result = TypeVar("Result")

_INLINE_BYTES = 64 * 1024
"""Most of a body that the event loop itself takes in: a few milliseconds' work at worst."""


def new_id(prefix: str, separator: str = "-") -> str:
    """A fresh id that can't be guessed, such as ``chatcmpl-5f...``."""
    return f"{prefix}{separator}{uuid.uuid4().hex}"


class OrjsonResponse(Response):
    """A JSON body."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return json_bytes(content)


async def read_body(request: Request, model: type[Body], max_bytes: int) -> Body:
    """Reads a JSON body and validates it.

    Raises:
        RequestTooLargeError: more than ``max_bytes``, by its header or in fact.
        InvalidRequestError: not JSON, or not what ``model`` describes.
        RequestAbortedError: the client has left.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        # A page on another origin can send any other type with no preflight.
        raise InvalidRequestError(
            f"send the body as content-type application/json, not {media_type or 'without a type'}",
            code="unsupported_media_type",
        )
    announced = request.headers.get("content-length", "0")
    if announced.isdigit() and int(announced) > max_bytes:
        raise _too_large(max_bytes)
    raw = bytearray()
    try:
        async for chunk in request.stream():
            raw += chunk
            if len(raw) > max_bytes:
                raise _too_large(max_bytes)
    except ClientDisconnect:
        raise RequestAbortedError("the client left before its body was complete") from None
    request.state.has_long_body = len(raw) > _INLINE_BYTES
    return await beside(request, lambda: _validated(raw, model))


async def beside(request: Request, work: Callable[[], Result]) -> Result:
    """What ``work`` makes of a request's body: off the event loop if that is long."""
    return await off_loop(work, is_long=request.state.has_long_body)


def _validated(raw: bytearray, model: type[Body]) -> Body:
    try:
        return model.model_validate_json(raw)
    except ValidationError as error:
        raise invalid_body(error) from None
    except RecursionError:
        raise InvalidRequestError("the body is nested too deep", code="invalid_json") from None


def _too_large(max_bytes: int) -> RequestTooLargeError:
    return RequestTooLargeError(f"the body is over the limit of {max_bytes} bytes")


def as_ramet_error(error: Exception) -> RametError:
    """Any error as one of the tree; what isn't foreseen says nothing of the inside."""
    match error:
        case RametError():
            return error
        case GrammarTooComplexError():
            return InvalidConstraintError(str(error), code="grammar_too_complex")
        case ConstraintError():
            return InvalidConstraintError(str(error))
        case HTTPException(status_code=404):
            return NotFoundError("no such path; see /openapi.json for what there is")
        case HTTPException(status_code=status) if 400 <= status < 500:
            return InvalidRequestError(str(error.detail), code=f"http_{status}")
        case _:
            logger.error("an unexpected error", exc_info=error)
            return RametError("an unexpected error; the server's log has it", code="internal_error")


def error_headers(error: RametError) -> Mapping[str, str]:
    """Headers that go with an error."""
    if isinstance(error, QueueFullError):
        return {"retry-after": str(max(1, math.ceil(error.retry_after_s)))}
    if error.status == 503:
        return {"retry-after": "1"}
    if error.status == 401:
        return {"www-authenticate": "Bearer"}
    return {}


def error_body(error: RametError, path: str) -> dict[str, Any]:
    """The error in the shape that the API of ``path`` has."""
    if not path.startswith("/v1/messages"):
        return error.body()
    shown: dict[str, Any] = {"type": _anthropic_type(error), "message": error.message}
    if error.code == THREAD_UNSUPPORTED:
        shown["details"] = {"error_code": error.code}
    return {"type": "error", "error": shown}


_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def _anthropic_type(error: RametError) -> str:
    return _ANTHROPIC_TYPES.get(error.status, "api_error")


def error_response(error: Exception, path: str) -> Response:
    """The whole answer to a request that failed before its answer began."""
    known = as_ramet_error(error)
    status, headers = known.status, dict(error_headers(known))
    if isinstance(error, HTTPException):  # such as a wrong method, which names the right ones
        status = error.status_code
        headers |= error.headers or {}
    return OrjsonResponse(error_body(known, path), status_code=status, headers=headers)


def install_error_handlers(app: FastAPI) -> None:
    """Gives every failure of every route the error shape of its API."""

    async def handle(request: Request, error: Exception) -> Response:
        return error_response(error, request.url.path)

    for kind in (RametError, ConstraintError, HTTPException, Exception):
        app.add_exception_handler(kind, handle)

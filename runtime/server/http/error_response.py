"""Errors as HTTP responses, in the shape of the API that was called."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from ramet.grammars.errors import ConstraintError
from ramet.runtime.api.errors import (
    InvalidRequestError,
    NotFoundError,
    QueueFullError,
    RametError,
    constraint_error,
)
from ramet.runtime.server.http.json_response import JsonResponse
from ramet.runtime.server.protocol.base import THREAD_UNSUPPORTED

logger = logging.getLogger("ramet.server")

_MAX_TEXT_LEN = 4096
"""Longest text of an error; a client's megabytes are not sent back."""


def as_ramet_error(error: Exception) -> RametError:
    """Maps any exception to the error tree; an unexpected one is logged and reveals no details."""
    match error:
        case RametError():
            return error
        case ConstraintError():
            return constraint_error(error)
        case HTTPException(status_code=404):
            return NotFoundError("no such path; /openapi.json lists the available ones")
        case HTTPException(status_code=status) if 400 <= status < 500:
            return InvalidRequestError(str(error.detail), code=f"http_{status}")
        case _:
            logger.error("unexpected error", exc_info=error)
            return RametError("unexpected error; see the server's log", code="internal_error")


def error_headers(error: RametError) -> Mapping[str, str]:
    """Headers to send with an error."""
    if isinstance(error, QueueFullError):
        return {"retry-after": str(max(1, math.ceil(error.retry_after_s)))}
    if error.status == 503:
        return {"retry-after": "1"}
    if error.status == 401:
        return {"www-authenticate": "Bearer"}
    return {}


def error_body(error: RametError, path: str) -> dict[str, Any]:
    """Formats an error for the API that ``path`` belongs to."""
    if path.startswith("/api/"):  # Ollama's
        return {"error": _shortened(error.message)}
    if not path.startswith("/v1/messages"):
        body: dict[str, Any] = error.body()
        for field in ("message", "param"):
            body["error"][field] = _shortened(body["error"][field])
        return body
    shown: dict[str, Any] = {"type": _anthropic_type(error), "message": _shortened(error.message)}
    if error.code == THREAD_UNSUPPORTED:
        shown["details"] = {"error_code": error.code}
    return {"type": "error", "error": shown}


def _shortened(text: str | None) -> str | None:
    """A text that may quote the request, with its middle left out if it is long."""
    if text is None or len(text) <= _MAX_TEXT_LEN:
        return text
    return f"{text[: _MAX_TEXT_LEN // 2]} ... {text[-_MAX_TEXT_LEN // 2 :]}"


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
    """The response to a request that failed before its response began."""
    known = as_ramet_error(error)
    status, headers = known.status, dict(error_headers(known))
    if isinstance(error, HTTPException):  # such as a 405, whose headers list the allowed methods
        status = error.status_code
        headers |= error.headers or {}
    return JsonResponse(error_body(known, path), status_code=status, headers=headers)


def install_error_handlers(app: FastAPI) -> None:
    """Formats errors of every route for its API."""

    async def handle(request: Request, error: Exception) -> Response:
        return error_response(error, request.url.path)

    for kind in (RametError, ConstraintError, HTTPException, Exception):
        app.add_exception_handler(kind, handle)

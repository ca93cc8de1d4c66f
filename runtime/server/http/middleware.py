"""Wraps every request: its id, a log line, a metric, a trace. Prompts are never logged."""

from __future__ import annotations

import logging
import re
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ramet.runtime.api.log import request_fields
from ramet.runtime.api.off_loop import client_has_gone
from ramet.runtime.chat.field_warnings import FieldWarnings
from ramet.runtime.server.http.connection import HAS_GONE
from ramet.runtime.server.http.json_response import new_id
from ramet.runtime.server.observability.metrics import ServerMetrics
from ramet.runtime.server.observability.trace import Tracing

logger = logging.getLogger("ramet.access")

_CLIENT_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")


class RequestLog:
    """Sets ``x-request-id`` on each response: the client's own if it is plain, otherwise a new one.

    Fields of the body without effect are named in ``x-ramet-warnings``.

    ``HEAD`` is answered as ``GET`` is, without the body.
    """

    def __init__(
        self, app: ASGIApp, *, metrics: ServerMetrics, tracing: Tracing, log: bool
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._tracing = tracing
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        request_fields.set({"request_id": request_id.decode()})
        if HAS_GONE in scope:
            client_has_gone.set(scope[HAS_GONE])
        method, is_head = scope["method"], scope["method"] == "HEAD"
        if is_head:
            scope = {**scope, "method": "GET"}
        trace = self._tracing.start(scope, request_id.decode())
        scope["state"] = {**scope.get("state", {}), "trace": trace}
        started = time.monotonic()
        status = 500

        async def send_and_record_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *_own_headers(scope, request_id)]
            elif is_head:
                message = {**message, "body": b""}
            await send(message)

        try:
            await self._app(scope, receive, send_and_record_status)
        finally:
            route = scope.get("route")
            path = getattr(route, "path", "unknown")
            self._metrics.record_response(path, status)
            trace.end(None if route is None else path, status)
            if self._log:
                fields = {
                    **(request_fields.get() or {}),
                    "method": method,
                    "path": path,
                    "status": status,
                    "seconds": round(time.monotonic() - started, 4),
                }
                logger.info("http_request", extra={"fields": fields})


def _own_headers(scope: Scope, request_id: bytes) -> list[tuple[bytes, bytes]]:
    """The request's id, and the fields of its body that had no effect."""
    headers = [(b"x-request-id", request_id)]
    warnings: FieldWarnings | None = scope["state"].get("field_warnings")
    if warnings is not None and (named := warnings.header()):
        headers.append(named)
    return headers


def _request_id(scope: Scope) -> bytes:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _CLIENT_ID.fullmatch(value):
            return bytes(value)
    return new_id("req").encode()

"""Routes for whoever runs the server: health, readiness, version, models, metrics, aborts."""

from __future__ import annotations

import importlib.metadata
import time
from typing import Any

from fastapi import APIRouter
from fastapi import Request as HttpRequest
from pydantic import Field
from starlette.responses import PlainTextResponse, Response

from ramet.runtime.errors import EngineDeadError, NotFoundError
from ramet.runtime.server.context import ServerContext
from ramet.runtime.server.http import OrjsonResponse
from ramet.runtime.server.lifecycle import ShuttingDownError
from ramet.runtime.server.metrics import CONTENT_TYPE
from ramet.runtime.server.openapi import json_body
from ramet.runtime.server.protocol.base import ApiModel


class AbortRequest(ApiModel):
    """``POST /v1/abort``: the id of a call that is running, as its answer shows it."""

    request_id: str = Field(min_length=1)


def operations_router(context: ServerContext) -> APIRouter:
    """The operators' routes of a server."""
    router = APIRouter(tags=["Operation"])
    started = int(time.time())

    @router.get("/health")
    async def health() -> Response:
        """200 while the engine lives; 503 with its error once it has died."""
        _check_alive(context)
        return OrjsonResponse({"status": "ok"})

    @router.get("/ready")
    async def ready() -> Response:
        """200 while new requests are taken; 503 once the server is shutting down."""
        _check_alive(context)
        if context.lifecycle.draining:
            raise ShuttingDownError("the server is shutting down")
        return OrjsonResponse({"status": "ready"})

    @router.get("/version")
    async def version() -> Response:
        """The version of Ramet."""
        return OrjsonResponse({"version": importlib.metadata.version("ramet")})

    @router.get("/metrics")
    async def metrics() -> Response:
        """Prometheus metrics."""
        return PlainTextResponse(context.telemetry.registry.render(), media_type=CONTENT_TYPE)

    @router.get("/v1/models")
    async def models() -> Response:
        """The served model, under each of its names."""
        cards = [_model_card(context, name, started) for name in context.model_names]
        return OrjsonResponse({"object": "list", "data": cards})

    @router.get("/v1/models/{name:path}")
    async def model(name: str) -> Response:
        """One served model."""
        return OrjsonResponse(_model_card(context, context.check_model(name), started))

    @router.post("/v1/abort", openapi_extra=json_body(AbortRequest))
    async def abort(http_request: HttpRequest) -> Response:
        """Aborts a running call within a step."""
        body = await context.body(http_request, AbortRequest)
        if not context.lifecycle.abort(body.request_id):
            raise NotFoundError(f"no request {body.request_id!r} is running", param="request_id")
        return OrjsonResponse({"request_id": body.request_id, "aborted": True})

    return router


def _check_alive(context: ServerContext) -> None:
    error = context.engine.error
    if error is not None:
        raise EngineDeadError(f"the engine has stopped: {error}")


def _model_card(context: ServerContext, name: str, started: int) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": started,
        "owned_by": "ramet",
        "root": context.engine.model_name,
        "max_model_len": context.engine.max_context_len,
    }

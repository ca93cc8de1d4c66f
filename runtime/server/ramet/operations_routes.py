"""Operators' routes: health, readiness, version, metrics."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata

from fastapi import APIRouter, Depends
from starlette.responses import Response

from ramet.runtime.api.errors import (
    EngineDeadError,
    EngineUnresponsiveError,
    ShuttingDownError,
)
from ramet.runtime.engine.monitoring.stats import EngineStats
from ramet.runtime.server.calls.context import ServerContext
from ramet.runtime.server.http.json_response import JsonResponse
from ramet.runtime.server.observability.exposition import CONTENT_TYPE, reading
from ramet.runtime.server.observability.memory_metrics import memory_metrics


def operations_router(context: ServerContext) -> APIRouter:
    """The operators' routes of a server."""
    router = APIRouter(tags=["Operation"])

    @router.get("/health")
    async def health() -> Response:
        """200 while the engine makes progress; otherwise 503 with its error."""
        _check_alive(context)
        return JsonResponse({"status": "ok"})

    @router.get("/ready")
    async def ready() -> Response:
        """200 while new requests are taken; 503 once the server is shutting down."""
        _check_alive(context)
        if context.lifecycle.draining:
            raise ShuttingDownError("the server is shutting down")
        return JsonResponse({"status": "ready"})

    @router.get("/version")
    async def version() -> Response:
        """The version of Ramet."""
        return JsonResponse({"version": importlib.metadata.version("ramet")})

    @router.get("/metrics", dependencies=[Depends(context.authenticate_admin)])
    async def metrics() -> Response:
        """Prometheus metrics."""
        stats: EngineStats | None = None
        with contextlib.suppress(EngineDeadError):
            stats = await asyncio.to_thread(context.engine.stats)
        others = memory_metrics(context.memory.plan, context.memory.usage(), stats)
        if context.metering is not None:
            name, help_text = "ramet:metering_lost_lines_total", "Lost lines of the metering log."
            others.append(reading(name, "counter", help_text, context.metering.num_lost))
        text = await asyncio.to_thread(context.metrics.render, stats, others)
        return Response(text, media_type=CONTENT_TYPE)

    return router


def _check_alive(context: ServerContext) -> None:
    error = context.engine.error
    if isinstance(error, EngineUnresponsiveError):
        raise error
    if error is not None:
        raise EngineDeadError(f"the engine has stopped: {error}")

"""``/v1/models``, and ``/v1/abort`` for running calls."""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter
from fastapi import Request as HttpRequest
from pydantic import Field
from starlette.responses import Response

from ramet.runtime.api.errors import NotFoundError
from ramet.runtime.server.calls.context import ServerContext, tenant_of
from ramet.runtime.server.http.json_response import JsonResponse
from ramet.runtime.server.http.openapi import json_body
from ramet.runtime.server.protocol.base import ApiModel


class AbortRequest(ApiModel):
    """``POST /v1/abort``: the id of a running call, as in its response."""

    request_id: str = Field(min_length=1)


def models_router(context: ServerContext) -> APIRouter:
    """The routes of the served model and its running calls."""
    router = APIRouter(tags=["OpenAI"])
    started = int(time.time())

    @router.get("/v1/models")
    async def models() -> Response:
        """The served model, under each of its names."""
        cards = [_model_card(context, name, started) for name in context.model_names]
        return JsonResponse({"object": "list", "data": cards})

    @router.get("/v1/models/{name:path}")
    async def model(name: str) -> Response:
        """One served model."""
        return JsonResponse(_model_card(context, context.check_model(name), started))

    @router.post("/v1/abort", openapi_extra=json_body(AbortRequest))
    async def abort(http_request: HttpRequest) -> Response:
        """Aborts a running call within a step."""
        body = await context.body(http_request, AbortRequest)
        if not context.lifecycle.abort(tenant_of(http_request).scoped(body.request_id)):
            raise NotFoundError(f"no request {body.request_id!r} is running", param="request_id")
        return JsonResponse({"request_id": body.request_id, "aborted": True})

    return router


def _model_card(context: ServerContext, name: str, started: int) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": started,
        "owned_by": "ramet",
        "root": context.engine.model_name,
        "max_model_len": context.engine.max_context_len,
        "default_sampling_params": dict(context.engine.sampling_defaults),
    }

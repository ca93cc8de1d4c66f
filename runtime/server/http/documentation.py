"""The document of the API, for clients with a key where keys are required."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, FastAPI
from fastapi.params import Depends
from starlette.responses import Response

from ramet.runtime.server.http.json_response import JsonResponse


def documentation_router(app: FastAPI, requires_key: Sequence[Depends]) -> APIRouter:
    """``/openapi.json`` of an application; ``/docs`` shows it (see ``ui``)."""
    router = APIRouter(dependencies=requires_key, include_in_schema=False)

    @router.get("/openapi.json")
    async def openapi() -> Response:
        return JsonResponse(app.openapi())

    return router

"""The pages that document the API, for clients with a key where keys are required."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, FastAPI
from fastapi.openapi.docs import get_redoc_html, get_swagger_ui_html
from fastapi.params import Depends
from starlette.responses import Response

from ramet.runtime.server.http.json_response import JsonResponse


def documentation_router(app: FastAPI, requires_key: Sequence[Depends]) -> APIRouter:
    """``/openapi.json``, ``/docs`` and ``/redoc`` of an application."""
    router = APIRouter(dependencies=requires_key, include_in_schema=False)

    @router.get("/openapi.json")
    async def openapi() -> Response:
        return JsonResponse(app.openapi())

    @router.get("/docs")
    async def docs() -> Response:
        return get_swagger_ui_html(openapi_url="/openapi.json", title=app.title)

    @router.get("/redoc")
    async def redoc() -> Response:
        return get_redoc_html(openapi_url="/openapi.json", title=app.title)

    return router

"""``POST /v1/hint_updates``: updates the hints of a program's requests."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi import Request as HttpRequest
from pydantic import Field
from starlette.responses import Response

from ramet.runtime.api.request import HintUpdate
from ramet.runtime.server.calls.context import ServerContext, tenant_of
from ramet.runtime.server.http.json_response import JsonResponse
from ramet.runtime.server.http.openapi import json_body
from ramet.runtime.server.protocol.base import ApiModel


class HintUpdateRequest(ApiModel):
    """The body: ``program_id`` and ``cache_salt`` as in the program's requests."""

    program_id: str
    cache_salt: str = ""
    unneeded: list[str] = Field(default=[], max_length=100_000)
    has_ended: bool = False


def hint_updates_router(context: ServerContext) -> APIRouter:
    """The route for updates of programs' hints."""
    router = APIRouter(tags=["Ramet"])

    @router.post("/v1/hint_updates", openapi_extra=json_body(HintUpdateRequest))
    async def update_hints(http_request: HttpRequest) -> Response:
        """Unpins prefixes that no future call of the program needs. Unknown names are ignored."""
        body = await context.body(http_request, HintUpdateRequest)
        tenant = tenant_of(http_request)
        context.engine.update_hint(
            HintUpdate(
                program_id=tenant.scoped(body.program_id),
                cache_salt=tenant.scoped(body.cache_salt),
                unneeded=tuple(body.unneeded),
                has_ended=body.has_ended,
            )
        )
        return JsonResponse({})

    return router

"""Routes of the page: its files, which need no key, and its data, which need one."""

from __future__ import annotations

import asyncio
import contextlib
import mimetypes
from collections.abc import AsyncIterator
from importlib import resources
from typing import Any

from fastapi import APIRouter, Depends, Query
from fastapi import Request as HttpRequest
from starlette.responses import RedirectResponse, Response

from ramet.runtime.api.errors import EngineDeadError, NotFoundError
from ramet.runtime.server.calls.context import ServerContext, tenant_of
from ramet.runtime.server.http.json_response import JsonResponse
from ramet.runtime.server.http.sse import EventStreamResponse, data_event
from ramet.runtime.server.observability.history import EngineHistory
from ramet.runtime.server.ui.cache_tree import SharedViews, tree_for

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
_TREE_EVERY_S = 1.0


def page_router(context: ServerContext, history: EngineHistory) -> APIRouter:
    """The page and its data."""
    router = APIRouter(include_in_schema=False)
    files = _read_files()
    views = SharedViews(context.engine)

    @router.get("/")
    async def root(request: HttpRequest) -> Response:
        """A browser is sent to the page; a program gets what there is."""
        if "text/html" in request.headers.get("accept", ""):
            return RedirectResponse("/ui/", headers=_HEADERS)
        return JsonResponse({"name": "ramet", "ui": "/ui/", "docs": "/docs", "api": "/v1"})

    @router.get("/ui")
    async def without_slash() -> Response:
        return RedirectResponse("/ui/", headers=_HEADERS)

    @router.get("/ui/")
    async def index() -> Response:
        return files["index.html"]

    @router.get("/docs")
    async def docs() -> Response:
        return files["docs.html"]

    @router.get("/ui/data/engine", dependencies=[Depends(context.authenticate_admin)])
    async def engine(since: float = 0.0) -> Response:
        return JsonResponse({"samples": history.since(since)})

    @router.get("/ui/data/cache", dependencies=[Depends(context.authenticate)])
    async def cache(request: HttpRequest, once: bool = Query(default=False)) -> Response:
        """The tree, as server-sent events while it changes, or once."""
        tenant = tenant_of(request)

        async def tree() -> dict[str, Any]:
            return tree_for(await views.latest(), tenant, context.engine.tokenizer)

        if once:
            return JsonResponse(await tree())
        closed = asyncio.Event()

        async def events() -> AsyncIterator[bytes]:
            last = b""
            while not closed.is_set() and not context.lifecycle.draining:
                with contextlib.suppress(EngineDeadError):
                    event = data_event(await tree())
                    yield event if event != last else b": unchanged\n\n"
                    last = event
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(closed.wait(), _TREE_EVERY_S)

        return EventStreamResponse(events(), abort=closed.set, close=closed.set)

    @router.get("/ui/{name}")
    async def file(name: str) -> Response:
        if name not in files:
            raise NotFoundError(f"the page has no file {name!r}")
        return files[name]

    return router


def _read_files() -> dict[str, Response]:
    """The page's files as responses, which are read once."""
    found = {}
    for each in (resources.files("ramet.runtime.server.ui") / "assets").iterdir():
        kind = mimetypes.guess_type(each.name)[0] or "application/octet-stream"
        kind = "text/javascript" if each.name.endswith(".js") else kind
        found[each.name] = Response(each.read_bytes(), media_type=kind, headers=_HEADERS)
    return found

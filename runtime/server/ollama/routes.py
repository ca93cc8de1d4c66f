"""Ollama's API: ``/api/chat``, ``/api/generate``, and what clients ask about models."""

from __future__ import annotations

import datetime
import importlib.metadata
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

from fastapi import APIRouter
from fastapi import Request as HttpRequest
from starlette.responses import Response

from ramet.runtime.chat.conversation import Conversation
from ramet.runtime.server.calls.chat_call import ChatCall, prepare_chat_call
from ramet.runtime.server.calls.context import ServerContext, field_warnings
from ramet.runtime.server.calls.engine_requests import enforced_headers
from ramet.runtime.server.calls.generation import Generation
from ramet.runtime.server.calls.respond import respond
from ramet.runtime.server.http.body import run_for_body
from ramet.runtime.server.http.error_response import as_ramet_error, error_body
from ramet.runtime.server.http.json_response import JsonResponse, new_id
from ramet.runtime.server.http.openapi import json_body
from ramet.runtime.server.ollama.bodies import (
    OllamaCall,
    OllamaChatRequest,
    OllamaGenerateRequest,
    OllamaShowRequest,
)
from ramet.runtime.server.ollama.conversation import chat_conversation, prompt_conversation
from ramet.runtime.server.ollama.models import model_facts, model_list
from ramet.runtime.server.ollama.shapes import (
    NDJSON,
    ChatShape,
    GenerateShape,
    Shape,
    end,
    head,
    line,
    pieces,
    whole,
)

_PATH = "/api/chat"


def ollama_router(context: ServerContext) -> APIRouter:
    """Ollama's API of a server."""
    router = APIRouter(tags=["Ollama"])
    started = datetime.datetime.now(datetime.UTC)

    @router.post("/api/chat", openapi_extra=json_body(OllamaChatRequest))
    async def chat(http_request: HttpRequest) -> Response:
        """Continues a conversation; without messages it only says that the model is there."""
        body = await context.body(http_request, OllamaChatRequest)
        if not body.messages:
            return _loaded(context, http_request, body, ChatShape())
        return await _answer(
            context, http_request, body, ChatShape(), lambda: chat_conversation(body)
        )

    @router.post("/api/generate", openapi_extra=json_body(OllamaGenerateRequest))
    async def generate(http_request: HttpRequest) -> Response:
        """Answers one prompt; without one it only says that the model is there."""
        body = await context.body(http_request, OllamaGenerateRequest)
        if not body.prompt:
            return _loaded(context, http_request, body, GenerateShape())
        return await _answer(
            context, http_request, body, GenerateShape(), lambda: prompt_conversation(body)
        )

    @router.get("/api/tags")
    @router.get("/api/ps")
    async def models() -> Response:
        """The served model."""
        return JsonResponse(model_list(context, started))

    @router.post("/api/show", openapi_extra=json_body(OllamaShowRequest))
    async def show(http_request: HttpRequest) -> Response:
        """What is known of a served model."""
        body = await context.body(http_request, OllamaShowRequest)
        context.check_model(body.model)
        return JsonResponse(model_facts(context))

    @router.get("/api/version")
    async def version() -> Response:
        """The version of Ramet."""
        return JsonResponse({"version": importlib.metadata.version("ramet")})

    return router


def _loaded(
    context: ServerContext, http_request: HttpRequest, body: OllamaCall, shape: Shape
) -> Response:
    """The answer to a body that asks nothing."""
    model = context.check_model(body.model)
    loaded = {**head(model), **shape.piece("", "", ()), "done": True, "done_reason": "load"}
    return JsonResponse(loaded | field_warnings(http_request).fields())


async def _answer(
    context: ServerContext,
    http_request: HttpRequest,
    body: OllamaCall,
    shape: Shape,
    conversation: Callable[[], Conversation],
) -> Response:
    call = await prepare_chat_call(
        context,
        http_request,
        new_id("chat"),
        body,
        await run_for_body(http_request, conversation),
        fit_context=True,
    )
    generation = await call.start(context, http_request)
    headers = enforced_headers(call.plan.constraint)
    return await respond(
        http_request,
        generation.call,
        stream=_stream(call, generation, shape) if body.stream else None,
        whole=partial(_whole, call, generation, shape),
        headers={**headers, "content-type": NDJSON} if body.stream else headers,
    )


async def _whole(call: ChatCall, generation: Generation, shape: Shape) -> dict[str, Any]:
    async for _, events in generation.events():
        call.choice.feed(events)
    return {**head(call.model), **whole(shape, call.choice), **end(call.choice)}


async def _stream(call: ChatCall, generation: Generation, shape: Shape) -> AsyncIterator[bytes]:
    try:
        async for _, events in generation.events():
            deltas = call.choice.feed(events)[0]
            if shaped := pieces(shape, deltas, call.choice):
                begin = head(call.model)
                yield b"".join([line({**begin, **each, "done": False}) for each in shaped])
    except Exception as error:
        yield line(error_body(as_ramet_error(error), _PATH))
        return
    last = {**head(call.model), **shape.piece("", "", ()), **end(call.choice)}
    yield line(last | call.warnings.fields())

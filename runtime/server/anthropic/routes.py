"""``POST /v1/messages`` and ``POST /v1/messages/count_tokens``: Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from functools import partial
from typing import Any

from fastapi import APIRouter
from fastapi import Request as HttpRequest
from starlette.responses import Response

from ramet.runtime.server.anthropic.bodies import CountTokensRequest, MessagesRequest
from ramet.runtime.server.anthropic.conversation import anthropic_conversation
from ramet.runtime.server.anthropic.shapes import AnswerBlocks, Event, answer_end, answer_head
from ramet.runtime.server.calls.chat_call import ChatCall, prepare_chat_call
from ramet.runtime.server.calls.context import ServerContext
from ramet.runtime.server.calls.engine_requests import enforced_headers
from ramet.runtime.server.calls.generation import Generation
from ramet.runtime.server.calls.respond import respond
from ramet.runtime.server.http.body import run_for_body
from ramet.runtime.server.http.error_response import as_ramet_error, error_body
from ramet.runtime.server.http.json_response import JsonResponse, new_id
from ramet.runtime.server.http.openapi import json_body
from ramet.runtime.server.http.sse import named_event

_PATH = "/v1/messages"


def anthropic_router(context: ServerContext) -> APIRouter:
    """The Messages API of a server."""
    router = APIRouter(tags=["Anthropic"])

    @router.post(_PATH, openapi_extra=json_body(MessagesRequest))
    async def messages(http_request: HttpRequest) -> Response:
        """Continues a conversation."""
        body = await context.body(http_request, MessagesRequest)
        body.check()
        # Clients of this API always send max_tokens, and often more than a small model has.
        call = await prepare_chat_call(
            context,
            http_request,
            new_id("msg", "_"),
            body,
            await run_for_body(http_request, lambda: anthropic_conversation(body)),
            fit_context=True,
        )
        generation = await call.start(context, http_request)
        return await respond(
            http_request,
            generation.call,
            stream=_stream(call, generation) if body.stream else None,
            whole=partial(_whole, call, generation),
            headers=enforced_headers(call.plan.constraint),
        )

    @router.post(_PATH + "/count_tokens", openapi_extra=json_body(CountTokensRequest))
    async def count_tokens(http_request: HttpRequest) -> Response:
        """The number of tokens of a conversation's prompt."""
        body = await context.body(http_request, CountTokensRequest)
        context.check_model(body.model)
        conversation = await run_for_body(http_request, lambda: anthropic_conversation(body))
        prompt = await context.planner.prompt(conversation)
        return JsonResponse({"input_tokens": len(prompt)})

    return router


def _head(call: ChatCall) -> dict[str, Any]:
    return answer_head(call.id, call.model, len(call.plan.prompt)) | call.warnings.fields()


async def _whole(call: ChatCall, generation: Generation) -> dict[str, Any]:
    blocks = AnswerBlocks(call.choice.message)
    async for _, events in generation.events():
        blocks.feed(call.choice.feed(events)[0])
    end = answer_end(call.choice, max_tokens=call.requests[0].params.max_tokens)
    return _head(call) | {"content": blocks.blocks, **end["stop"], "usage": end["usage"]}


async def _stream(call: ChatCall, generation: Generation) -> AsyncIterator[bytes]:
    blocks = AnswerBlocks(call.choice.message)
    yield _written([{"type": "message_start", "message": _head(call)}, {"type": "ping"}])
    try:
        async for _, events in generation.events():
            shaped = blocks.feed(call.choice.feed(events)[0])
            if shaped:
                yield _written(shaped)
    except Exception as error:
        yield named_event("error", error_body(as_ramet_error(error), _PATH))
        return
    end = answer_end(call.choice, max_tokens=call.requests[0].params.max_tokens)
    delta = {"type": "message_delta", "delta": end["stop"], "usage": end["usage"]}
    yield _written([*blocks.end(), delta, {"type": "message_stop"}])


def _written(events: Iterable[Event]) -> bytes:
    return b"".join([named_event(event["type"], event) for event in events])

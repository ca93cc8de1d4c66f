"""``/v1/responses``: OpenAI's Responses API, with conversations kept in memory."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from fastapi import APIRouter
from fastapi import Request as HttpRequest
from starlette.responses import Response

from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.chat.conversation import Conversation
from ramet.runtime.server.calls.chat_call import ChatCall, prepare_chat_call
from ramet.runtime.server.calls.context import ServerContext, tenant_of
from ramet.runtime.server.calls.engine_requests import enforced_headers
from ramet.runtime.server.calls.generation import Generation
from ramet.runtime.server.calls.respond import respond
from ramet.runtime.server.http.body import run_for_body
from ramet.runtime.server.http.error_response import as_ramet_error
from ramet.runtime.server.http.json_response import JsonResponse, new_id
from ramet.runtime.server.http.openapi import json_body
from ramet.runtime.server.http.sse import named_event
from ramet.runtime.server.openai.responses.bodies import InputTokensRequest, ResponsesRequest
from ramet.runtime.server.openai.responses.conversation import (
    ChatMessage,
    add_input,
    answer_message,
    responses_conversation,
)
from ramet.runtime.server.openai.responses.output import Event, OutputItems
from ramet.runtime.server.openai.responses.shapes import (
    failed_fields,
    finished_fields,
    new_response,
)
from ramet.runtime.server.openai.responses.store import (
    ResponseStore,
    ResponseStores,
    StoredResponse,
)

_ONE = "/v1/responses/{response_id}"


def responses_router(context: ServerContext) -> APIRouter:
    """The Responses API of a server."""
    router = APIRouter(tags=["OpenAI"])
    config = context.config
    stores = ResponseStores(
        config.max_stored_responses, config.max_stored_response_bytes, context.memory.responses
    )

    def store_of(http_request: HttpRequest) -> ResponseStore:
        return stores.for_tenant(tenant_of(http_request).name)

    @router.post("/v1/responses", openapi_extra=json_body(ResponsesRequest))
    async def create(http_request: HttpRequest) -> Response:
        """Starts or continues a conversation."""
        body = await context.body(http_request, ResponsesRequest)
        answer = await _prepare(context, body, http_request, store_of(http_request))
        generation = await answer.call.start(context, http_request)
        return await respond(
            http_request,
            generation.call,
            stream=_stream(answer, generation) if body.stream else None,
            whole=partial(_whole, answer, generation),
            headers=enforced_headers(answer.call.plan.constraint),
        )

    @router.post("/v1/responses/input_tokens", openapi_extra=json_body(InputTokensRequest))
    async def input_tokens(http_request: HttpRequest) -> Response:
        """Counts the prompt tokens of a response."""
        body = await context.body(http_request, InputTokensRequest)
        context.check_model(body.model)
        _, conversation = await _conversation(body, http_request, store_of(http_request))
        prompt = await context.planner.prompt(conversation)
        return JsonResponse({"object": "response.input_tokens", "input_tokens": len(prompt)})

    @router.get(_ONE)
    async def retrieve(response_id: str, http_request: HttpRequest) -> Response:
        """Returns a stored response."""
        for name, value in http_request.query_params.items():
            if (name, value) != ("stream", "false"):
                raise InvalidParameterError(
                    f"{name} is not supported by this server",
                    param=name,
                    code="unsupported_parameter",
                )
        return JsonResponse(store_of(http_request).get(response_id).response)

    @router.delete(_ONE)
    async def delete(response_id: str, http_request: HttpRequest) -> Response:
        """Deletes a stored response."""
        store_of(http_request).delete(response_id)
        return JsonResponse({"id": response_id, "object": "response", "deleted": True})

    return router


@dataclass(frozen=True, slots=True)
class _Answer:
    """A response that is being generated; ``response`` is the object so far."""

    body: ResponsesRequest
    call: ChatCall
    store: ResponseStore
    messages: Sequence[ChatMessage]
    response: dict[str, Any]
    output: OutputItems

    async def events(self, generation: Generation) -> AsyncIterator[list[Event]]:
        """Yields the output's events."""
        choice, want_logprobs = self.call.choice, self.body.wants_logprobs
        async for _, events in generation.events():
            # One event at a time, so that each token is attributed to its delta.
            for group in [[event] for event in events] if want_logprobs else [events]:
                deltas, tokens = choice.feed(group)
                yield self.output.feed(deltas, tokens if want_logprobs else ())

    def end(self) -> list[Event]:
        """Completes and stores the response; returns the events that close its output."""
        choice = self.call.choice
        events = self.output.end(complete=choice.finish_reason != "length")
        self.response.update(finished_fields(choice, int(time.time())), output=self.output.items)
        if self.body.store:
            messages = [*self.messages, answer_message(choice.message)]
            self.response["store"] = self.store.put(StoredResponse(self.response, messages))
        return events


async def _conversation(
    body: InputTokensRequest, http_request: HttpRequest, store: ResponseStore
) -> tuple[Sequence[ChatMessage], Conversation]:
    """Returns all messages, stored ones included, and the conversation."""
    earlier: Sequence[ChatMessage] = ()
    if body.previous_response_id is not None:
        earlier = store.get(body.previous_response_id, param="previous_response_id").messages

    def convert() -> tuple[Sequence[ChatMessage], Conversation]:
        messages = add_input(earlier, body.input)
        return messages, responses_conversation(body, messages)

    return await run_for_body(http_request, convert)


async def _prepare(
    context: ServerContext, body: ResponsesRequest, http_request: HttpRequest, store: ResponseStore
) -> _Answer:
    messages, conversation = await _conversation(body, http_request, store)
    call = await prepare_chat_call(context, http_request, new_id("resp", "_"), body, conversation)
    response = new_response(
        body,
        response_id=call.id,
        model=call.model,
        params=call.requests[0].params,
        created_at=int(time.time()),
    )
    response |= call.warnings.fields()
    return _Answer(body, call, store, messages, response, OutputItems(call.choice.message))


async def _whole(answer: _Answer, generation: Generation) -> dict[str, Any]:
    async for _ in answer.events(generation):
        pass
    answer.end()
    return answer.response


async def _stream(answer: _Answer, generation: Generation) -> AsyncIterator[bytes]:
    number = 0

    def written(events: Iterable[Event]) -> bytes:
        nonlocal number
        written = []
        for event in events:
            written.append(named_event(event["type"], {**event, "sequence_number": number}))
            number += 1
        return b"".join(written)

    def lifecycle(kind: str) -> Event:
        return {"type": f"response.{kind}", "response": answer.response}

    yield written([lifecycle("created"), lifecycle("in_progress")])
    try:
        async for events in answer.events(generation):
            if events:
                yield written(events)
    except Exception as error:
        answer.response.update(failed_fields(as_ramet_error(error)), output=answer.output.items)
        yield written([lifecycle("failed")])
        return
    closing = answer.end()
    yield written([*closing, lifecycle(answer.response["status"])])

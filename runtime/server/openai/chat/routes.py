"""``POST /v1/chat/completions``."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from fastapi import APIRouter
from fastapi import Request as HttpRequest
from starlette.responses import Response

from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.api.events import Event, TokenInfo
from ramet.runtime.chat.choice import ChatChoice
from ramet.runtime.server.calls.chat_call import ChatCall, prepare_chat_call
from ramet.runtime.server.calls.context import ServerContext
from ramet.runtime.server.calls.engine_requests import enforced_headers
from ramet.runtime.server.calls.generation import Generation
from ramet.runtime.server.calls.logprobs import chat_logprobs, prompt_logprobs
from ramet.runtime.server.calls.respond import respond
from ramet.runtime.server.calls.usage import CallUsage
from ramet.runtime.server.http.body import run_for_body
from ramet.runtime.server.http.error_response import as_ramet_error
from ramet.runtime.server.http.json_response import new_id
from ramet.runtime.server.http.openapi import json_body
from ramet.runtime.server.http.sse import DONE, data_event
from ramet.runtime.server.openai.chat.bodies import ChatCompletionRequest
from ramet.runtime.server.openai.chat.shapes import chunk_deltas, whole_message


def chat_router(context: ServerContext) -> APIRouter:
    """The chat routes of a server."""
    router = APIRouter(tags=["OpenAI"])

    @router.post("/v1/chat/completions", openapi_extra=json_body(ChatCompletionRequest))
    async def chat_completions(http_request: HttpRequest) -> Response:
        """Continues a conversation."""
        body = await context.body(http_request, ChatCompletionRequest)
        call = await _prepare(context, body, http_request)
        generation = await call.start(context, http_request)
        answer = _Answer(body, call, int(time.time()))
        return await respond(
            http_request,
            generation.call,
            stream=_stream(answer, generation) if body.stream else None,
            whole=partial(_whole, answer, generation),
            headers=enforced_headers(call.plan.constraint),
        )

    return router


@dataclass(frozen=True, slots=True)
class _Answer:
    """A call's answer while it is generated."""

    body: ChatCompletionRequest
    call: ChatCall
    created: int

    def head(self, kind: str) -> dict[str, Any]:
        call = self.call
        return {"id": call.id, "object": kind, "created": self.created, "model": call.model}


async def _prepare(
    context: ServerContext, body: ChatCompletionRequest, http_request: HttpRequest
) -> ChatCall:
    context.check_choices(body.n)
    body.usage_options()
    if body.stream and body.prompt_logprobs is not None:
        raise InvalidParameterError(
            "prompt_logprobs can't be streamed; omit stream",
            param="prompt_logprobs",
        )
    conversation = await run_for_body(http_request, body.conversation)
    call_id = body.request_id or new_id("chatcmpl")
    return await prepare_chat_call(context, http_request, call_id, body, conversation)


async def _whole(answer: _Answer, generation: Generation) -> dict[str, Any]:
    body, call = answer.body, answer.call
    shown: list[list[TokenInfo]] = [[] for _ in call.choices]
    ids: list[list[int]] = [[] for _ in call.choices]
    async for index, events in generation.events():
        shown[index] += call.choices[index].feed(events)[1]
        if body.return_token_ids:
            ids[index] += token_ids(events)
    entries: list[dict[str, Any]] = []
    for index, choice in enumerate(call.choices):
        entry: dict[str, Any] = {
            "index": index,
            "message": whole_message(choice.message),
            "logprobs": _logprobs(shown[index], body) if body.logprobs else None,
            "finish_reason": choice.finish_reason,
        }
        if choice.matched_stop is not None:
            entry["stop_reason"] = choice.matched_stop
        if body.return_token_ids:
            entry["token_ids"] = ids[index]
        entries.append(entry)
    completion = answer.head("chat.completion") | {"choices": entries, "usage": _usage(call)}
    if body.return_token_ids:
        completion["prompt_token_ids"] = list(call.plan.prompt)
    prompt = call.choice.prompt_logprobs
    if prompt is not None:
        completion["prompt_logprobs"] = prompt_logprobs(prompt.tokens)
    return completion


async def _stream(answer: _Answer, generation: Generation) -> AsyncIterator[bytes]:
    body, call = answer.body, answer.call
    options = body.usage_options()
    head = answer.head("chat.completion.chunk")
    streams = [_ChoiceStream(index, choice, body) for index, choice in enumerate(call.choices)]
    first = head | call.warnings.fields()
    if body.return_token_ids:
        first = first | {"prompt_token_ids": list(call.plan.prompt)}
    role = {"role": "assistant", "content": ""}
    yield b"".join(
        data_event(first | {"choices": [_entry(index, role)]}) for index in range(len(streams))
    )
    try:
        async for index, events in generation.events():
            entries = streams[index].feed(events)
            if options.continuous_usage_stats:
                head["usage"] = _usage_so_far(call)
            yield b"".join([data_event(head | {"choices": [entry]}) for entry in entries])
    except Exception as error:
        yield data_event(as_ramet_error(error).body())
        return
    if options.include_usage:
        yield data_event(head | {"choices": [], "usage": _usage(call)})
    yield DONE


def _entry(index: int, delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    return {"index": index, "delta": delta, "finish_reason": finish_reason}


class _ChoiceStream:
    """Turns one choice's events into the ``choices`` entries of its chunks.

    Tokens whose text is held back go into the next chunk, so each appears exactly once.
    """

    def __init__(self, index: int, choice: ChatChoice, body: ChatCompletionRequest) -> None:
        self._index = index
        self._choice = choice
        self._body = body
        self._shown: list[TokenInfo] = []
        self._ids: list[int] = []

    def feed(self, events: list[Event]) -> list[dict[str, Any]]:
        """Returns the entries for some events: usually one, sometimes none."""
        deltas, shown = self._choice.feed(events)
        shaped = chunk_deltas(deltas, self._choice.message)
        entries = [_entry(self._index, delta) for delta in shaped]
        if self._choice.finished is not None:
            end = _entry(self._index, {}, self._choice.finish_reason)
            if self._choice.matched_stop is not None:
                end["stop_reason"] = self._choice.matched_stop
            entries.append(end)
        if self._body.logprobs:
            self._shown += shown
            if entries and self._shown:
                entries[0]["logprobs"] = _logprobs(self._shown, self._body)
                self._shown = []
        if self._body.return_token_ids:
            self._ids += token_ids(events)
            if entries and self._ids:
                entries[0]["token_ids"] = self._ids
                self._ids = []
        return entries


def token_ids(events: list[Event]) -> list[int]:
    """The ids of all tokens in some events, end-of-text included."""
    return [token.token_id for event in events for token in getattr(event, "tokens", ())]


def _logprobs(tokens: list[TokenInfo], body: ChatCompletionRequest) -> dict[str, Any]:
    content = chat_logprobs(tokens, with_origin=body.return_token_origins)
    return {"content": content, "refusal": None}


def _usage(call: ChatCall) -> dict[str, Any]:
    return CallUsage.from_usages(
        [choice.usage for choice in call.choices],
        len(call.choices),
        reasoning_tokens=sum(choice.num_reasoning_tokens for choice in call.choices),
    ).as_openai()


def _usage_so_far(call: ChatCall) -> dict[str, int]:
    prompt_tokens = len(call.plan.prompt)
    completion_tokens = sum(choice.num_tokens for choice in call.choices)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }

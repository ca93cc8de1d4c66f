"""``POST /v1/chat/completions``."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter
from fastapi import Request as HttpRequest
from starlette.responses import Response

from ramet.runtime.errors import InvalidParameterError
from ramet.runtime.events import TokenInfo
from ramet.runtime.request import Request
from ramet.runtime.server.context import ServerContext, abort_on_disconnect, tenant_of
from ramet.runtime.server.generation import Generation
from ramet.runtime.server.http import OrjsonResponse, as_ramet_error, new_id
from ramet.runtime.server.logprobs import chat_logprobs, prompt_logprobs
from ramet.runtime.server.messages import ChatChoice, Delta, MessageBuilder
from ramet.runtime.server.openapi import json_body
from ramet.runtime.server.protocol.chat import ChatCompletionRequest
from ramet.runtime.server.requests import build_requests, enforced_headers
from ramet.runtime.server.sse import DONE, EventStreamResponse, data_event
from ramet.runtime.server.tools import ChatPlan, plan_chat
from ramet.runtime.server.usage import CallUsage


def chat_router(context: ServerContext) -> APIRouter:
    """The chat routes of a server."""
    router = APIRouter(tags=["OpenAI"])

    @router.post("/v1/chat/completions", openapi_extra=json_body(ChatCompletionRequest))
    async def chat_completions(http_request: HttpRequest) -> Response:
        """Continues a conversation."""
        body = await context.body(http_request, ChatCompletionRequest)
        call = await _prepare(context, body, http_request)
        generation = await context.begin(call.id, call.requests, http_request)
        headers = enforced_headers(call.plan.constraint)
        if body.stream:
            return EventStreamResponse(
                _stream(call, generation),
                abort=generation.abort,
                close=generation.close,
                headers=headers,
            )
        async with abort_on_disconnect(http_request, generation):
            return OrjsonResponse(await _whole(call, generation), headers=headers)

    return router


@dataclass(frozen=True, slots=True)
class _Call:
    """A chat call that is ready to run: its requests, one a choice, and how to read them."""

    id: str
    created: int
    model: str
    body: ChatCompletionRequest
    requests: list[Request]
    plan: ChatPlan

    def choices(self) -> list[ChatChoice]:
        return [ChatChoice(self.plan.parser()) for _ in self.requests]

    def head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


async def _prepare(
    context: ServerContext, body: ChatCompletionRequest, http_request: HttpRequest
) -> _Call:
    model = context.check_model(body.model)
    context.check_choices(body.n)
    body.usage_wanted()
    if body.stream and body.prompt_logprobs is not None:
        raise InvalidParameterError(
            "prompt_logprobs come only in a whole response; leave stream out",
            param="prompt_logprobs",
        )
    plan = plan_chat(body)
    prompt = await context.prompts.chat(
        [message.for_template() for message in body.messages],
        tools=plan.shown_tools,
        add_generation_prompt=body.add_generation_prompt,
        continue_final_message=body.continue_final_message,
        variables=plan.template_variables,
    )
    call_id = body.request_id or new_id("chatcmpl")
    requests = build_requests(call_id, body, [prompt], plan.constraint, tenant_of(http_request))
    return _Call(call_id, int(time.time()), model, body, requests, plan)


async def _whole(call: _Call, generation: Generation) -> dict[str, Any]:
    body = call.body
    choices = call.choices()
    builders = [MessageBuilder() for _ in choices]
    tokens: list[list[TokenInfo]] = [[] for _ in choices]
    async for index, events in generation.events():
        deltas, new_tokens = choices[index].feed(events)
        builders[index].add(deltas)
        tokens[index] += new_tokens
    entries: list[dict[str, Any]] = []
    for index, (choice, builder) in enumerate(zip(choices, builders, strict=True)):
        entry: dict[str, Any] = {
            "index": index,
            "message": builder.message(),
            "logprobs": _logprobs(tokens[index]) if body.logprobs else None,
            "finish_reason": choice.finish_reason,
        }
        if choice.finished and choice.finished.matched_stop is not None:
            entry["stop_reason"] = choice.finished.matched_stop
        if body.return_token_ids:
            entry["token_ids"] = [token.token_id for token in tokens[index]]
        entries.append(entry)
    answer = call.head("chat.completion") | {"choices": entries, "usage": _usage(choices)}
    if body.return_token_ids:
        answer["prompt_token_ids"] = list(call.requests[0].prompt_token_ids)
    if choices[0].prompt_logprobs is not None:
        answer["prompt_logprobs"] = prompt_logprobs(choices[0].prompt_logprobs.tokens)
    return answer


async def _stream(call: _Call, generation: Generation) -> AsyncIterator[bytes]:
    body = call.body
    head = call.head("chat.completion.chunk")
    choices = call.choices()
    streams = [_ChoiceStream(index, choice, body) for index, choice in enumerate(choices)]
    first = head
    if body.return_token_ids:
        first = head | {"prompt_token_ids": list(call.requests[0].prompt_token_ids)}
    yield b"".join(
        data_event(first | {"choices": [_choice(index, {"role": "assistant", "content": ""})]})
        for index in range(len(choices))
    )
    counter = _RunningUsage(call) if body.usage_wanted().continuous_usage_stats else None
    try:
        async for index, events in generation.events():
            entries = streams[index].feed(events)
            if counter is not None:
                head["usage"] = counter.usage(streams)
            yield b"".join([data_event(head | {"choices": [entry]}) for entry in entries])
    except Exception as error:
        yield data_event(as_ramet_error(error).body())
        return
    if body.usage_wanted().include_usage:
        yield data_event(head | {"choices": [], "usage": _usage(choices)})
    yield DONE


def _choice(index: int, delta: Delta, finish_reason: str | None = None) -> dict[str, Any]:
    return {"index": index, "delta": delta, "finish_reason": finish_reason}


class _ChoiceStream:
    """Turns one choice's events into the ``choices`` entries of its chunks.

    Tokens whose text is still held back wait for the next chunk, so each appears exactly once.
    """

    def __init__(self, index: int, choice: ChatChoice, body: ChatCompletionRequest) -> None:
        self._index = index
        self._choice = choice
        self._want_logprobs = bool(body.logprobs)
        self._want_token_ids = body.return_token_ids
        self._waiting: list[TokenInfo] = []
        self.num_tokens = 0

    def feed(self, events: list[Any]) -> list[dict[str, Any]]:
        deltas, tokens = self._choice.feed(events)
        self.num_tokens += len(tokens)
        entries = [_choice(self._index, delta) for delta in deltas]
        finished = self._choice.finished
        if finished is not None:
            end = _choice(self._index, {}, self._choice.finish_reason)
            if finished.matched_stop is not None:
                end["stop_reason"] = finished.matched_stop
            entries.append(end)
        if self._want_logprobs or self._want_token_ids:
            self._waiting += tokens
            if entries and self._waiting:
                self._attach(entries[0])
        return entries

    def _attach(self, entry: dict[str, Any]) -> None:
        if self._want_logprobs:
            entry["logprobs"] = _logprobs(self._waiting)
        if self._want_token_ids:
            entry["token_ids"] = [token.token_id for token in self._waiting]
        self._waiting = []


class _RunningUsage:
    """Usage so far, for ``continuous_usage_stats``."""

    def __init__(self, call: _Call) -> None:
        self._prompt_tokens = len(call.requests[0].prompt_token_ids)

    def usage(self, streams: list[_ChoiceStream]) -> dict[str, int]:
        completion = sum(stream.num_tokens for stream in streams)
        return {
            "prompt_tokens": self._prompt_tokens,
            "completion_tokens": completion,
            "total_tokens": self._prompt_tokens + completion,
        }


def _logprobs(tokens: list[TokenInfo]) -> dict[str, Any]:
    return {"content": chat_logprobs(tokens), "refusal": None}


def _usage(choices: list[ChatChoice]) -> dict[str, Any]:
    return CallUsage.of([choice.usage for choice in choices], len(choices)).openai()

"""``POST /v1/completions``."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from fastapi import APIRouter
from fastapi import Request as HttpRequest
from starlette.responses import Response

from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.api.events import Event, Finished, PromptLogprobs, TextDelta, TokenInfo
from ramet.runtime.api.request import Request
from ramet.runtime.chat.choice import ShownTokens
from ramet.runtime.chat.field_warnings import FieldWarnings
from ramet.runtime.chat.param_paths import Origins
from ramet.runtime.server.calls.context import (
    ServerContext,
    field_warnings,
    tenant_of,
    trace_of,
)
from ramet.runtime.server.calls.engine_requests import (
    build_requests,
    enforced_headers,
    sampling_params,
)
from ramet.runtime.server.calls.generation import Generation, start_generation
from ramet.runtime.server.calls.logprobs import CompletionLogprobs, prompt_logprobs
from ramet.runtime.server.calls.respond import respond
from ramet.runtime.server.calls.usage import CallUsage
from ramet.runtime.server.http.error_response import as_ramet_error
from ramet.runtime.server.http.json_response import new_id
from ramet.runtime.server.http.openapi import json_body
from ramet.runtime.server.http.sse import DONE, data_event
from ramet.runtime.server.openai.completions.bodies import CompletionRequest
from ramet.runtime.server.protocol.shared_fields import split_prompts


def completions_router(context: ServerContext) -> APIRouter:
    """The completions routes of a server."""
    router = APIRouter(tags=["OpenAI"])

    @router.post("/v1/completions", openapi_extra=json_body(CompletionRequest))
    async def completions(http_request: HttpRequest) -> Response:
        """Continues one or more plain prompts."""
        body = await context.body(http_request, CompletionRequest)
        call = await _prepare(context, body, http_request)
        trace_of(http_request).describe(call.model)
        generation = await start_generation(
            context, http_request, call.id, call.requests, origins=call.origins
        )
        return await respond(
            http_request,
            generation.call,
            stream=_stream(call, generation) if body.stream else None,
            whole=partial(_whole, call, generation),
            headers=enforced_headers(call.requests[0].constraint),
        )

    return router


@dataclass(frozen=True, slots=True)
class _Call:
    """A call that is ready to be submitted; ``echoes`` has a text for each choice."""

    id: str
    created: int
    model: str
    body: CompletionRequest
    requests: list[Request]
    echoes: list[str]
    eos_ids: frozenset[int]
    origins: Origins | None
    warnings: FieldWarnings

    def head(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.model,
        }

    def choices(self) -> list[_Choice]:
        return [_Choice(self, index) for index in range(len(self.requests))]


async def _prepare(
    context: ServerContext, body: CompletionRequest, http_request: HttpRequest
) -> _Call:
    model = context.check_model(body.model)
    given = split_prompts(body.prompt)
    context.check_choices(body.n, len(given))
    body.usage_options()
    if body.stream and body.prompt_logprobs is not None:
        raise InvalidParameterError(
            "prompt_logprobs can't be streamed; omit stream",
            param="prompt_logprobs",
        )
    prompts = await context.prompts.encode(given, add_special_tokens=body.add_special_tokens)
    requested = body.requested_constraint()
    call_id = body.request_id or new_id("cmpl")
    origins = Origins.of_constraint(requested) if requested else None
    constraint = origins.narrow(requested.constraint) if requested and origins else None
    requests = build_requests(
        call_id,
        body,
        sampling_params(body, context.engine.sampling_defaults),
        prompts,
        constraint,
        tenant_of(http_request),
    )
    if body.score_from is not None:
        requests = [replace(request, score_from=body.score_from) for request in requests]
    echoes = [""] * len(requests)
    if body.echo:
        texts = [
            text if isinstance(text, str) else context.prompts.tokenizer.decode(text)
            for text in given
        ]
        echoes = [text for text in texts for _ in range(body.n)]
    return _Call(
        call_id,
        int(time.time()),
        model,
        body,
        requests,
        echoes,
        context.engine.tokenizer.eos_ids,
        origins,
        field_warnings(http_request),
    )


class _Choice:
    """Converts one choice's events to text, log-probabilities and an end."""

    def __init__(self, call: _Call, index: int) -> None:
        body = call.body
        self.index = index
        self.request = call.requests[index]
        self.finished: Finished | None = None
        self.prompt_tokens: tuple[TokenInfo, ...] | None = None
        self.num_tokens = 0
        self._echo = call.echoes[index]
        self._echo_logprobs = body.echo and body.logprobs is not None
        self._want_token_ids = body.return_token_ids
        self._logprobs: CompletionLogprobs | None = None
        if body.logprobs is not None:
            self._logprobs = CompletionLogprobs(with_top=body.logprobs > 0)
        self._shown = ShownTokens(self.request.params, call.eos_ids)
        self._waiting: list[TokenInfo] = []
        self._new_ids: list[int] = []

    def feed(self, events: list[Event], *, whole: bool = False) -> dict[str, Any] | None:
        """Returns the ``choices`` entry for some events; None: nothing to show yet.

        With ``whole``, ``events`` are all of the request's, and the entry is the whole answer's.
        """
        text = [self._echo] if self._echo else []
        tokens: list[TokenInfo] = []
        for event in events:
            if isinstance(event, TextDelta):
                text.append(event.text)
                self.num_tokens += len(event.tokens)
                tokens += event.tokens
            elif isinstance(event, PromptLogprobs):
                self.prompt_tokens = event.tokens
                if self._echo_logprobs:
                    self._waiting += event.tokens
            elif isinstance(event, Finished):
                self.finished = event
        self._new_ids += [token.token_id for token in tokens]
        self._waiting += self._shown.select(tokens, self.finished)
        joined = "".join(text)
        if not joined and not whole and self.finished is None:
            return None
        self._echo = ""
        return self._entry(joined, whole=whole)

    def _entry(self, text: str, *, whole: bool) -> dict[str, Any]:
        entry: dict[str, Any] = {"index": self.index, "text": text}
        if self._logprobs is not None and (self._waiting or whole):
            entry["logprobs"] = self._logprobs.add(self._waiting)
        elif whole:
            entry["logprobs"] = None
        if self._want_token_ids:
            entry["token_ids"] = self._new_ids
        self._waiting, self._new_ids = [], []
        entry["finish_reason"] = self.finished.reason if self.finished else None
        if self.finished is not None and self.finished.matched_stop is not None:
            entry["stop_reason"] = self.finished.matched_stop
        return entry


async def _whole(call: _Call, generation: Generation) -> dict[str, Any]:
    body = call.body
    choices = call.choices()
    collected: list[list[Event]] = [[] for _ in choices]
    async for index, events in generation.events():
        collected[index] += events
    entries = []
    for choice, events in zip(choices, collected, strict=True):
        entry = choice.feed(events, whole=True)
        assert entry is not None
        if body.return_token_ids:
            entry["prompt_token_ids"] = list(choice.request.prompt_token_ids)
        if body.prompt_logprobs is not None and choice.prompt_tokens is not None:
            entry["prompt_logprobs"] = prompt_logprobs(choice.prompt_tokens)
        entries.append(entry)
    return call.head() | {"choices": entries, "usage": _usage(call, choices)}


async def _stream(call: _Call, generation: Generation) -> AsyncIterator[bytes]:
    head = call.head()
    first = call.warnings.fields()
    choices = call.choices()
    options = call.body.usage_options()
    shown_prompts: set[int] = set()
    try:
        async for index, events in generation.events():
            choice = choices[index]
            entry = choice.feed(events)
            if entry is None:
                continue
            if call.body.return_token_ids and index not in shown_prompts:
                shown_prompts.add(index)
                entry["prompt_token_ids"] = list(choice.request.prompt_token_ids)
            if options.continuous_usage_stats:
                head["usage"] = _usage_so_far(call, choices)
            yield data_event(head | first | {"choices": [entry]})
            first = {}
    except Exception as error:
        yield data_event(as_ramet_error(error).body())
        return
    if options.include_usage:
        yield data_event(head | {"choices": [], "usage": _usage(call, choices)})
    yield DONE


def _usage(call: _Call, choices: list[_Choice]) -> dict[str, Any]:
    usages = [choice.finished.usage for choice in choices if choice.finished is not None]
    return CallUsage.from_usages(usages, call.body.n).as_openai()


def _usage_so_far(call: _Call, choices: list[_Choice]) -> dict[str, int]:
    prompt_tokens = sum(len(request.prompt_token_ids) for request in call.requests[:: call.body.n])
    completion_tokens = sum(choice.num_tokens for choice in choices)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }

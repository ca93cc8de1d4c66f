"""``POST /v1/embeddings``."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from fastapi import APIRouter
from fastapi import Request as HttpRequest
from starlette.responses import Response

from ramet.runtime.api.batch import Float32Array
from ramet.runtime.api.errors import ContextLengthError, InvalidParameterError
from ramet.runtime.api.events import Embedding, Finished
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import Request
from ramet.runtime.server.calls.context import ServerContext, tenant_of, trace_of
from ramet.runtime.server.calls.engine_requests import build_requests
from ramet.runtime.server.calls.generation import Generation, start_generation
from ramet.runtime.server.calls.in_flight import InFlightLimit
from ramet.runtime.server.calls.respond import respond
from ramet.runtime.server.http.json_response import new_id
from ramet.runtime.server.http.openapi import json_body
from ramet.runtime.server.openai.embeddings.bodies import EmbeddingsRequest
from ramet.runtime.server.protocol.shared_fields import split_prompts


def embeddings_router(context: ServerContext) -> APIRouter:
    """The embeddings route of a server."""
    router = APIRouter(tags=["OpenAI"])

    @router.post("/v1/embeddings", openapi_extra=json_body(EmbeddingsRequest))
    async def embeddings(http_request: HttpRequest) -> Response:
        """Each input as a vector of length 1, from the model's last hidden states."""
        body = await context.body(http_request, EmbeddingsRequest)
        model = context.check_model(body.model)
        prompts = await _prompts(context, body)
        call_id = body.request_id or new_id("embd")
        requests: list[Request] = [
            replace(request, pooling=body.pooling)
            for request in build_requests(
                call_id, body, SamplingParams(), prompts, None, tenant_of(http_request)
            )
        ]
        trace_of(http_request).describe(model)
        limit = InFlightLimit(context.submit, context.config.max_choices)
        generation = await start_generation(
            context, http_request, call_id, requests, submit=limit.submit
        )
        encode = _as_base64 if body.encoding_format == "base64" else _as_numbers
        num_tokens = sum(map(len, prompts))

        async def answer() -> dict[str, Any]:
            vectors = await _vectors(generation, len(requests))
            return {
                "object": "list",
                "data": [
                    {"object": "embedding", "index": index, "embedding": encode(vector)}
                    for index, vector in enumerate(vectors)
                ],
                "model": model,
                "usage": {"prompt_tokens": num_tokens, "total_tokens": num_tokens},
            }

        return await respond(http_request, generation.call, whole=answer)

    return router


async def _prompts(context: ServerContext, body: EmbeddingsRequest) -> list[tuple[int, ...]]:
    """Encodes the inputs; refuses those that exceed the context."""
    given = split_prompts(body.input, param="input")
    limit = context.config.max_inputs
    if len(given) > limit:
        raise InvalidParameterError(
            f"{len(given)} inputs exceed the limit of {limit} in one call", param="input"
        )

    def param(index: int) -> str:
        return f"input[{index}]" if len(given) > 1 else "input"

    prompts = await context.prompts.encode(
        given, add_special_tokens=body.add_special_tokens, param=param
    )
    for index, ids in enumerate(prompts):
        if len(ids) > context.engine.max_context_len:
            raise ContextLengthError(
                f"this model's maximum context length is {context.engine.max_context_len} tokens; "
                f"{param(index)} has {len(ids)}",
                param=param(index),
            )
    return prompts


async def _vectors(generation: Generation, num_inputs: int) -> Sequence[Float32Array]:
    """Collects the inputs' vectors, in order."""
    vectors: dict[int, Float32Array] = {}
    async for index, events in generation.events():
        for event in events:
            if isinstance(event, Embedding):
                vectors[index] = event.vector
            else:
                assert isinstance(event, Finished)
    return [vectors[index] for index in range(num_inputs)]


def _as_numbers(vector: Float32Array) -> list[float]:
    numbers: list[float] = vector.tolist()
    return numbers


def _as_base64(vector: Float32Array) -> str:
    """Encodes the vector as little-endian float32, as OpenAI's client expects."""
    return base64.b64encode(np.asarray(vector, "<f4").tobytes()).decode()

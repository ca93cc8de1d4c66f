"""``POST /v1/grammar/check``: checks a constraint without running a model."""

from __future__ import annotations

import asyncio
import time
from functools import cache
from typing import Any

from fastapi import APIRouter
from fastapi import Request as HttpRequest
from pydantic import Field
from starlette.responses import Response

from ramet.grammars import CompileLimits
from ramet.grammars.constraints import Constraint
from ramet.grammars.errors import ConstraintError, EmptyConstraintError, GrammarTooComplexError
from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.engine.api import EngineApi
from ramet.runtime.server.calls.context import ServerContext
from ramet.runtime.server.http.json_response import JsonResponse
from ramet.runtime.server.http.openapi import json_body
from ramet.runtime.server.protocol.response_format import ConstraintFields
from ramet.runtime.server.ramet.grammar_sample import shortest_looking_match

_LIMITS = CompileLimits(max_seconds=5.0)
_MAX_MATCH_S = 5.0
_MAX_TEXT_LEN = 100_000
_MAX_COMPARISON_S = 2.0


class GrammarCheckRequest(ConstraintFields):
    """A constraint in any form that chat accepts, and optionally a text to match.

    With ``overlaps`` the answer lists the alternatives that have texts in common.
    """

    text: str | None = Field(default=None, max_length=_MAX_TEXT_LEN)
    overlaps: bool = False


def grammar_router(context: ServerContext) -> APIRouter:
    """The grammar routes of a server."""
    router = APIRouter(tags=["Ramet"])
    one_at_a_time = asyncio.Semaphore(1)

    @cache
    def load() -> None:
        """Loads compiled code; at a first start, waits for the process that compiles it."""
        from ramet.runtime.api.warm_up import load_constraints

        load_constraints(lambda: not context.lifecycle.draining)

    def load_and_check(constraint: Constraint, body: GrammarCheckRequest) -> dict[str, Any]:
        load()
        answer = _check(constraint, context.engine, body.text)
        if body.overlaps and "sample" in answer:
            from ramet.grammars import find_overlaps  # loaded when first needed

            report = find_overlaps(constraint, max_seconds=_MAX_COMPARISON_S, limits=_LIMITS)
            answer |= report.to_json()
        return answer

    @router.post("/v1/grammar/check", openapi_extra=json_body(GrammarCheckRequest))
    async def check(http_request: HttpRequest) -> Response:
        """Whether a constraint can be honoured, a text that matches it, and its cost."""
        body = await context.body(http_request, GrammarCheckRequest)
        requested = body.requested_constraint()
        if requested is None:
            raise InvalidParameterError(
                "a constraint is required: response_format or structured_outputs",
                param="response_format",
            )
        constraint = requested.constraint
        async with one_at_a_time:
            answer = await asyncio.to_thread(load_and_check, constraint, body)
        return JsonResponse(answer)

    return router


def _check(constraint: Constraint, engine: EngineApi, text: str | None) -> dict[str, Any]:
    from ramet.grammars import compile_constraint  # the compiler is loaded when first needed

    vocabulary = engine.vocabulary
    started = time.perf_counter()
    try:
        grammar = compile_constraint(constraint, vocabulary, limits=_LIMITS)
        answer: dict[str, Any] = {
            "kind": constraint.kind,
            "supported": True,
            "empty": False,
            "compile_seconds": round(time.perf_counter() - started, 6),
            "sample": shortest_looking_match(grammar),
            "states": grammar.num_states,
            "contexts": grammar.num_contexts,
        }
        if text is not None:
            result = grammar.match(text, max_seconds=_MAX_MATCH_S)
            answer["match"] = {
                "accepted": result.accepted,
                "offset": result.offset,
                "expected": result.expected,
            }
    except ConstraintError as error:
        return {
            "kind": constraint.kind,
            "supported": isinstance(error, EmptyConstraintError),
            "empty": isinstance(error, EmptyConstraintError),
            "too_complex": isinstance(error, GrammarTooComplexError),
            "path": error.path,
            "keyword": error.keyword,
            "reason": error.reason,
        }
    return answer

"""A chat call with one answer: what the Responses and the Messages API have in common."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import Request as HttpRequest

from ramet.runtime.api.request import Request
from ramet.runtime.engine.api import EngineApi, Submit
from ramet.runtime.server.calls.context import ServerContext, tenant_of, trace_of
from ramet.runtime.server.calls.engine_requests import build_requests, sampling_params
from ramet.runtime.server.calls.generation import Generation
from ramet.runtime.server.chat.choice import ChatChoice, ShownTokens
from ramet.runtime.server.chat.conversation import Conversation
from ramet.runtime.server.chat.planner import ChatPlan
from ramet.runtime.server.chat.reasoning_budget import BudgetedStream
from ramet.runtime.server.protocol.shared_fields import OneAnswerRequest


@dataclass(frozen=True, slots=True)
class ChatCall:
    """A call that is ready to run: its request, and the choice that reads its events."""

    id: str
    model: str
    plan: ChatPlan
    request: Request
    choice: ChatChoice

    async def begin(self, context: ServerContext, http_request: HttpRequest) -> Generation:
        """Submits the request and waits until it has something to say."""
        trace_of(http_request).describe(self.model, [self.choice])
        return await begin_chat(context, http_request, self.id, [self.request], self.plan)


async def begin_chat(
    context: ServerContext,
    http_request: HttpRequest,
    call_id: str,
    requests: Sequence[Request],
    plan: ChatPlan,
) -> Generation:
    """Submits a chat call's requests as its plan says; see ``ServerContext.begin``."""
    return await context.begin(
        call_id,
        requests,
        http_request,
        submitter(plan, context.engine),
        plan.origins,
        later=plan.budget.answer if plan.budget else None,
    )


def submitter(plan: ChatPlan, engine: EngineApi) -> Submit:
    """What sends a plan's requests to the engine: as they are, or with bounded reasoning."""
    budget = plan.budget
    if budget is None:
        return engine.submit
    return lambda request: BudgetedStream(
        request, budget, engine.tokenizer, engine.submit, engine.max_context_len
    )


async def prepare_chat_call(
    context: ServerContext,
    http_request: HttpRequest,
    call_id: str,
    body: OneAnswerRequest,
    conversation: Conversation,
    *,
    fit_context: bool = False,
) -> ChatCall:
    """Checks a body and plans its answer; ``RametError`` says what is wrong.

    With ``fit_context``, more output tokens than the context has room for mean as many as it has.
    """
    model = context.check_model(body.model)
    params = sampling_params(body)
    plan = await context.planner.plan(conversation)
    room = context.engine.max_context_len - len(plan.prompt)
    if fit_context and params.max_tokens is not None and params.max_tokens > room:
        params = dataclasses.replace(params, max_tokens=None)
    (request,) = build_requests(
        call_id, body, plan.adapt(params), [plan.prompt], plan.constraint, tenant_of(http_request)
    )
    choice = ChatChoice(plan.parser(), ShownTokens(params, context.engine.tokenizer.eos_ids))
    return ChatCall(call_id, model, plan, request, choice)

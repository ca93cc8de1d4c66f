"""A chat call up to its submission: what Chat Completions, Responses and Messages share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from fastapi import Request as HttpRequest

from ramet.runtime.api.errors import InvalidRequestError
from ramet.runtime.api.request import Request
from ramet.runtime.chat.choice import ChatChoice, ShownTokens
from ramet.runtime.chat.conversation import Conversation
from ramet.runtime.chat.field_warnings import FieldWarnings
from ramet.runtime.chat.param_paths import named_by_field
from ramet.runtime.chat.planner import ChatPlan
from ramet.runtime.chat.reasoning_budget import BudgetedStream
from ramet.runtime.engine.api import Submit
from ramet.runtime.server.calls.context import (
    ServerContext,
    field_warnings,
    tenant_of,
    trace_of,
)
from ramet.runtime.server.calls.engine_requests import build_requests, sampling_params
from ramet.runtime.server.calls.generation import Generation, start_generation
from ramet.runtime.server.protocol.shared_fields import CallFields


@dataclass(frozen=True, slots=True)
class ChatCall:
    """A call that is ready to be submitted: a request and a choice for each answer."""

    id: str
    model: str
    plan: ChatPlan
    requests: list[Request]
    choices: list[ChatChoice]
    field_of: Callable[[str], str]
    warnings: FieldWarnings

    @property
    def choice(self) -> ChatChoice:
        """The choice of an API that has one."""
        return self.choices[0]

    async def start(self, context: ServerContext, http_request: HttpRequest) -> Generation:
        """Submits the requests and waits for the first event."""
        trace_of(http_request).describe(self.model, self.choices)
        return await start_generation(
            context,
            http_request,
            self.id,
            self.requests,
            submit=_submit(self.plan, context),
            origins=self.plan.origins,
            later=self.plan.budget.answer if self.plan.budget else None,
            field_of=self.field_of,
        )


async def prepare_chat_call(
    context: ServerContext,
    http_request: HttpRequest,
    call_id: str,
    body: CallFields,
    conversation: Conversation,
    *,
    fit_context: bool = False,
) -> ChatCall:
    """Checks a body and plans its answers; a ``RametError`` explains what is wrong.

    With ``fit_context``, a ``max_tokens`` beyond the remaining context means all of that.
    """
    model = context.check_model(body.model)
    try:
        params = sampling_params(body, context.engine.sampling_defaults)
    except InvalidRequestError as error:
        raise named_by_field(error, body.field_of) from None
    warnings = field_warnings(http_request)
    plan = await context.planner.plan(conversation, warnings)
    remaining_len = context.engine.max_context_len - len(plan.prompt)
    if fit_context and params.max_tokens is not None and params.max_tokens > remaining_len:
        params = dataclasses.replace(params, max_tokens=None)
    requests = build_requests(
        call_id,
        body,
        plan.adapt(params),
        [plan.prompt],
        plan.constraint,
        tenant_of(http_request),
        complete=None if plan.has_tools else False,
    )
    eos_ids = context.engine.tokenizer.eos_ids
    choices = [
        ChatChoice(plan.parser(), ShownTokens(params, eos_ids), plan.tools) for _ in requests
    ]
    return ChatCall(call_id, model, plan, requests, choices, body.field_of, warnings)


def _submit(plan: ChatPlan, context: ServerContext) -> Submit:
    """Submits a plan's requests, directly or with bounded reasoning."""
    budget, engine = plan.budget, context.engine
    if budget is None:
        return context.submit
    return lambda request: BudgetedStream(
        request, budget, engine.tokenizer, context.submit, engine.max_context_len
    )

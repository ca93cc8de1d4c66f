"""What every route works with, made once for a server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from fastapi import Request as HttpRequest
from pydantic import BaseModel

from ramet.grammars.constraints import Constraint
from ramet.runtime.api.errors import InvalidConstraintError, InvalidParameterError, NotFoundError
from ramet.runtime.api.events import Failed, Finished
from ramet.runtime.api.request import Request
from ramet.runtime.engine.api import EngineApi, Submit
from ramet.runtime.server.calls.generation import Generation
from ramet.runtime.server.calls.lifecycle import Lifecycle
from ramet.runtime.server.calls.prompts import PromptEncoder
from ramet.runtime.server.calls.tenants import Tenant, Tenants
from ramet.runtime.server.chat.planner import ChatPlanner
from ramet.runtime.server.config import ServerConfig
from ramet.runtime.server.http.body import read_body
from ramet.runtime.server.http.sse import watch_disconnect
from ramet.runtime.server.observability.telemetry import Telemetry
from ramet.runtime.server.observability.trace import Trace
from ramet.runtime.server.protocol.param_paths import Origins

Body = TypeVar("Body", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class ServerContext:
    """The parts that routes share. ``model_names`` has at least one; the first is shown."""

    engine: EngineApi
    config: ServerConfig
    prompts: PromptEncoder
    planner: ChatPlanner
    telemetry: Telemetry
    lifecycle: Lifecycle
    tenants: Tenants
    model_names: tuple[str, ...]

    def check_model(self, name: str | None) -> str:
        """The served name; ``NotFoundError`` for another model's."""
        if name is not None and name not in self.model_names:
            raise NotFoundError(
                f"the model {name!r} is not served here; there is {', '.join(self.model_names)}",
                param="model",
                code="model_not_found",
            )
        return name or self.model_names[0]

    async def body(self, request: HttpRequest, model: type[Body]) -> Body:
        """The request's body as ``model``."""
        return await read_body(request, model, self.config.max_body_bytes)

    def check_choices(self, num_choices: int, num_prompts: int = 1) -> None:
        """Refuses fewer than one choice, and more in all than the configuration allows."""
        limit = self.config.max_choices
        if not 1 <= num_choices <= limit:
            raise InvalidParameterError(f"n must be from 1 to {limit}", param="n")
        if num_choices * num_prompts > limit:
            raise InvalidParameterError(
                f"{num_prompts} prompts with {num_choices} choices each are more than the "
                f"limit of {limit} in one call",
                param="prompt",
            )

    async def authenticate(self, http_request: HttpRequest) -> None:
        """A dependency of every route that isn't open to all: see ``tenant_of``."""
        http_request.state.tenant = self.tenants.find(http_request.headers)

    async def authenticate_admin(self, http_request: HttpRequest) -> None:
        """The same for routes of operators."""
        http_request.state.tenant = self.tenants.find_admin(http_request.headers)

    async def begin(
        self,
        call_id: str,
        requests: Sequence[Request],
        http_request: HttpRequest,
        submit: Submit | None = None,
        origins: Origins | None = None,
        later: Constraint | None = None,
    ) -> Generation:
        """Submits a call's requests, by the engine's ``submit`` unless another is given, and
        waits until the first has something to say.

        A failure up to here is raised, so that it becomes a plain error response. If the client
        leaves, the requests are aborted. ``origins`` are those of the call's
        constraint: the field that can't be honoured is named. ``later`` is a constraint that
        another request of the call will have: it is compiled now, so that it is refused now.
        """
        tenant = tenant_of(http_request)
        name = tenant.scoped(call_id)
        trace = trace_of(http_request)

        def note_end(event: Finished | Failed) -> None:
            self.telemetry.end(event)
            trace.note_end(event)
            tenant.pay(event.usage.prompt_tokens + event.usage.completion_tokens)

        def leave() -> None:
            self.lifecycle.leave(name)
            tenant.leave()
            trace.close()

        generation = Generation(on_end=note_end, on_close=leave)
        self.lifecycle.enter(name, generation.abort)
        try:
            tenant.enter()
        except BaseException:
            self.lifecycle.leave(name)
            raise
        whole = later
        trace.begin(call_id, requests)
        try:
            async with abort_on_disconnect(http_request, generation):
                if later is not None:
                    requests = await self._compile(later, requests, generation)
                whole = requests[0].constraint
                for request in requests:
                    generation.add((submit or self.engine.submit)(request))
                await generation.begin()
        except InvalidConstraintError as error:
            generation.close()
            if origins is None or whole is None:
                raise
            raise origins.locate(whole, error) from None
        except BaseException:
            generation.close()
            raise
        return generation

    async def _compile(
        self, constraint: Constraint, requests: Sequence[Request], generation: Generation
    ) -> list[Request]:
        """Waits for a constraint; the requests with what that leaves of their deadlines."""
        clock = asyncio.get_running_loop().time
        began = clock()
        deadlines = [each.deadline_s for each in requests if each.deadline_s is not None]
        await generation.wait_for(self.engine.compile(constraint), min(deadlines, default=None))

        def left(deadline_s: float | None) -> float | None:
            return None if deadline_s is None else max(deadline_s - (clock() - began), 1e-6)

        return [replace(each, deadline_s=left(each.deadline_s)) for each in requests]


class Call(Protocol):
    """What one HTTP call has running."""

    def abort(self) -> None:
        """Ends it early."""
        ...

    def close(self) -> None:
        """Ends what still runs; harmless when repeated."""
        ...


def trace_of(http_request: HttpRequest) -> Trace:
    """What takes notes of a request."""
    trace: Trace = http_request.state.trace
    return trace


def tenant_of(http_request: HttpRequest) -> Tenant:
    """Who sent an authenticated request."""
    tenant: Tenant = http_request.state.tenant
    return tenant


@contextlib.asynccontextmanager
async def whole_answer(http_request: HttpRequest, call: Call) -> AsyncIterator[None]:
    """Around the making of an answer that is sent in one piece: the call ends with the block."""
    try:
        async with abort_on_disconnect(http_request, call):
            yield
    finally:
        call.close()


@contextlib.asynccontextmanager
async def abort_on_disconnect(http_request: HttpRequest, call: Call) -> AsyncIterator[None]:
    """While the block runs, a client that leaves takes its requests with it."""
    watcher = asyncio.create_task(watch_disconnect(http_request.receive, call.abort))
    try:
        yield
    finally:
        watcher.cancel()

"""The server's shared parts, which every route gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from fastapi import Request as HttpRequest
from pydantic import BaseModel

from ramet.runtime.api.errors import InvalidParameterError, NotFoundError
from ramet.runtime.api.log import request_fields
from ramet.runtime.api.off_loop import work_owner
from ramet.runtime.api.request import Request
from ramet.runtime.chat.field_warnings import FieldWarnings
from ramet.runtime.chat.planner import ChatPlanner
from ramet.runtime.engine.api import EngineApi, EventStream
from ramet.runtime.server.calls.lifecycle import Lifecycle
from ramet.runtime.server.calls.memory import ServerMemory
from ramet.runtime.server.calls.prompts import PromptEncoder
from ramet.runtime.server.calls.tenants import Tenant, Tenants
from ramet.runtime.server.config import ServerConfig
from ramet.runtime.server.http.body import read_body
from ramet.runtime.server.observability.metering import MeteringLog
from ramet.runtime.server.observability.metrics import ServerMetrics
from ramet.runtime.server.observability.trace import Trace

Body = TypeVar("Body", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class ServerContext:
    """Parts shared by all routes. The first of ``model_names`` is shown in responses."""

    engine: EngineApi
    config: ServerConfig
    prompts: PromptEncoder
    planner: ChatPlanner
    metrics: ServerMetrics
    metering: MeteringLog | None
    memory: ServerMemory
    lifecycle: Lifecycle
    tenants: Tenants
    model_names: tuple[str, ...]

    def check_model(self, name: str | None) -> str:
        """Returns the model's served name; ``NotFoundError`` if it isn't served."""
        if name is not None and name not in self.model_names:
            raise NotFoundError(
                f"the model {name!r} is not served; available: {', '.join(self.model_names)}",
                param="model",
                code="model_not_found",
            )
        return name or self.model_names[0]

    def submit(self, request: Request) -> EventStream:
        """Submits a request, whose unread events count as the server's memory."""
        stream = self.engine.submit(request)
        stream.limit_unread(self.memory.answers)
        return stream

    async def body(self, request: HttpRequest, model: type[Body]) -> Body:
        """Reads and validates the request's body; ``field_warnings`` has its warnings."""
        warnings = FieldWarnings(self.config.unknown_fields)
        request.state.field_warnings = warnings
        return await read_body(request, model, self.config.max_body_bytes, warnings)

    def check_choices(self, num_choices: int, num_prompts: int = 1) -> None:
        """Checks the number of choices, in total too, against the configured limit."""
        limit = self.config.max_choices
        if not 1 <= num_choices <= limit:
            raise InvalidParameterError(f"n must be between 1 and {limit}", param="n")
        if num_choices * num_prompts > limit:
            raise InvalidParameterError(
                f"{num_prompts} prompts with {num_choices} choices each exceed the limit of "
                f"{limit} in one call",
                param="prompt",
            )

    async def authenticate(self, http_request: HttpRequest) -> None:
        """Route dependency: finds the tenant of the API key; see ``tenant_of``."""
        _set_tenant(http_request, self.tenants.find(http_request.headers))

    async def authenticate_admin(self, http_request: HttpRequest) -> None:
        """Route dependency of operators' routes: requires an admin's API key."""
        _set_tenant(http_request, self.tenants.find_admin(http_request.headers))


def _set_tenant(http_request: HttpRequest, tenant: Tenant) -> None:
    http_request.state.tenant = tenant
    work_owner.set(tenant.name)
    fields = request_fields.get()
    if fields is not None and tenant.name:
        fields["tenant"] = tenant.name


def field_warnings(http_request: HttpRequest) -> FieldWarnings:
    """The warnings of a request whose body was read."""
    warnings: FieldWarnings = http_request.state.field_warnings
    return warnings


def trace_of(http_request: HttpRequest) -> Trace:
    """The trace of a request."""
    trace: Trace = http_request.state.trace
    return trace


def tenant_of(http_request: HttpRequest) -> Tenant:
    """The tenant of an authenticated request."""
    tenant: Tenant = http_request.state.tenant
    return tenant

"""What every route works with, made once for a server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from fastapi import Request as HttpRequest
from pydantic import BaseModel

from ramet.runtime.api.errors import InvalidParameterError, NotFoundError
from ramet.runtime.engine.api import EngineApi
from ramet.runtime.server.calls.lifecycle import Lifecycle
from ramet.runtime.server.calls.prompts import PromptEncoder
from ramet.runtime.server.calls.tenants import Tenant, Tenants
from ramet.runtime.server.chat.planner import ChatPlanner
from ramet.runtime.server.config import ServerConfig
from ramet.runtime.server.http.body import read_body
from ramet.runtime.server.observability.telemetry import Telemetry
from ramet.runtime.server.observability.trace import Trace

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


def trace_of(http_request: HttpRequest) -> Trace:
    """What takes notes of a request."""
    trace: Trace = http_request.state.trace
    return trace


def tenant_of(http_request: HttpRequest) -> Tenant:
    """Who sent an authenticated request."""
    tenant: Tenant = http_request.state.tenant
    return tenant

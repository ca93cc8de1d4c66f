"""The tracer's interface, implemented as no-ops for tracing that is off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ramet.runtime.api.events import Failed, Finished
from ramet.runtime.api.request import Request

Scope = Mapping[str, Any]


class Choice(Protocol):
    """One choice of a call, as far as it has been generated."""

    @property
    def finished(self) -> Finished | None: ...

    @property
    def finish_reason(self) -> str: ...


class Trace:
    """The trace of one HTTP request. This one records nothing."""

    def describe(self, model: str, choices: Sequence[Choice] = ()) -> None:
        """Sets the call's model, and any choices whose finish reasons differ from the engine's."""

    def begin_call(self, call_id: str, requests: Sequence[Request]) -> None:
        """Records the call's requests, which are about to be submitted."""

    def begin_program(self, call_id: str, name: str, tenant: str) -> None:
        """Records that the call runs a program; its requests are reported as they end."""

    def record_node_end(self, request: Request, event: Finished | Failed) -> None:
        """Records the end of one of a program's requests."""

    def record_end(self, event: Finished | Failed) -> None:
        """Records the end of one of the call's requests."""

    def close(self) -> None:
        """Records the end of the call; its response may not have been sent yet."""

    def end(self, route: str | None, status: int) -> None:
        """Records the end of the HTTP request."""


class Tracing:
    """Starts traces. This one starts none."""

    def start(self, scope: Scope, request_id: str) -> Trace:
        """Starts the trace of the HTTP request of an ASGI scope."""
        del scope, request_id
        return _NO_TRACE

    def close(self) -> None:
        """Flushes pending spans, for a few seconds at most."""


_NO_TRACE = Trace()
NO_TRACING = Tracing()

"""Traces of requests: what the server tells a tracer, and which tracer there is.

Without OpenTelemetry, or without an endpoint, everything here does nothing.
"""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.api.events import Failed, Finished
from ramet.runtime.api.request import Request

logger = logging.getLogger("ramet.server")

Scope = Mapping[str, Any]


class Choice(Protocol):
    """An answer in the making."""

    @property
    def finished(self) -> Finished | None: ...

    @property
    def finish_reason(self) -> str: ...


class Trace:
    """One HTTP request, as it goes on; this one takes no notes."""

    def describe(self, model: str, choices: Sequence[Choice] = ()) -> None:
        """The call's model; its answers, if they may end for other reasons than the engine's."""

    def begin(self, call_id: str, requests: Sequence[Request]) -> None:
        """The call's requests, which are submitted now."""

    def begin_program(self, call_id: str, name: str, tenant: str) -> None:
        """The call runs a program, whose requests are told one by one, as they end."""

    def note_node(self, request: Request, event: Finished | Failed) -> None:
        """One of a program's requests has ended."""

    def note_end(self, event: Finished | Failed) -> None:
        """One of the requests has ended."""

    def close(self) -> None:
        """The call has ended; its answer may still have to be sent."""

    def end(self, route: str | None, status: int) -> None:
        """The HTTP request has ended."""


class Tracing:
    """What begins traces; this one doesn't."""

    def start(self, scope: Scope, request_id: str) -> Trace:
        """A trace of an HTTP request whose ASGI scope this is."""
        del scope, request_id
        return _NO_TRACE

    def close(self) -> None:
        """Sends what is left, for a few seconds at most."""


_NO_TRACE = Trace()
NO_TRACING = Tracing()


def check_endpoint(endpoint: str | None) -> None:
    """Raises ``InvalidParameterError`` if traces can't be sent to ``endpoint``; None is none."""
    if endpoint is None:
        return
    if not endpoint.startswith(("http://", "https://")):
        raise InvalidParameterError(
            f"an OTLP endpoint is an http:// or https:// URL, not {endpoint!r}",
            param="otlp_endpoint",
        )
    if not _is_installed():
        raise InvalidParameterError(
            "traces need OpenTelemetry: pip install 'ramet[otel]'", param="otlp_endpoint"
        )


def open_tracing(
    endpoint: str | None = None, environment: Mapping[str, str] = os.environ
) -> Tracing:
    """A tracer that sends to ``endpoint``, or to where OpenTelemetry's variables say; if neither
    does, one that does nothing.

    Variables may be there for other programs, so what they ask for and Ramet can't do is a warning.
    """
    check_endpoint(endpoint)
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return NO_TRACING
    if endpoint is None:
        if not any(environment.get(name) for name in _ENDPOINTS):
            return NO_TRACING
        refusal = _refusal(environment)
        if refusal:
            logger.warning("no traces are sent: %s", refusal)
            return NO_TRACING
    from ramet.runtime.server.observability.otel import OtelTracing

    return OtelTracing.to_endpoint(endpoint)


_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def _refusal(environment: Mapping[str, str]) -> str | None:
    """Why traces can't be sent as the environment says."""
    exporter = environment.get("OTEL_TRACES_EXPORTER") or "otlp"
    if exporter != "otlp":
        return f"OTEL_TRACES_EXPORTER is {exporter}"
    protocol = (
        environment.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
        or environment.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        or "http/protobuf"
    )
    if protocol != "http/protobuf":
        return f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol}, and only http/protobuf is supported"
    return None if _is_installed() else "OpenTelemetry is missing: pip install 'ramet[otel]'"


def _is_installed() -> bool:
    try:
        return importlib.util.find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:
        return False

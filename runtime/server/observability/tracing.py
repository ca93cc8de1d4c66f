"""Chooses the tracer: OpenTelemetry if it is installed and has an endpoint, otherwise none."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

from ramet.runtime.server.observability.otlp_endpoint import check_endpoint, environment_problem
from ramet.runtime.server.observability.trace import NO_TRACING, Tracing

logger = logging.getLogger("ramet.server")

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def open_tracing(
    endpoint: str | None = None, environment: Mapping[str, str] = os.environ
) -> Tracing:
    """Opens a tracer for ``endpoint`` or, if None, for OpenTelemetry's environment variables.

    The variables may be meant for other programs, so unsupported values only cause a warning.
    """
    check_endpoint(endpoint)
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return NO_TRACING
    if endpoint is None:
        if not any(environment.get(name) for name in _ENDPOINTS):
            return NO_TRACING
        problem = environment_problem(environment)
        if problem:
            logger.warning("no traces are sent: %s", problem)
            return NO_TRACING
    from ramet.runtime.server.observability.otel import OtelTracing

    return OtelTracing.to_endpoint(endpoint)

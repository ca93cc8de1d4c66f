"""Checks where traces are exported to. Imports no OpenTelemetry."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping

from ramet.runtime.api.errors import InvalidParameterError


def check_endpoint(endpoint: str | None) -> None:
    """Raises ``InvalidParameterError`` if traces can't be exported to ``endpoint``."""
    if endpoint is None:
        return
    if not endpoint.startswith(("http://", "https://")):
        raise InvalidParameterError(
            f"the OTLP endpoint must be an http:// or https:// URL, not {endpoint!r}",
            param="otlp_endpoint",
        )
    if not _is_installed():
        raise InvalidParameterError(
            "traces need OpenTelemetry: pip install 'ramet[otel]'", param="otlp_endpoint"
        )


def environment_problem(environment: Mapping[str, str]) -> str | None:
    """Why OpenTelemetry's environment variables can't be honoured; None if they can."""
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

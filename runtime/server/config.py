"""What an operator may set about the server itself; the engine has its own configuration."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.api.validate import number, whole
from ramet.runtime.server.observability.otlp_endpoint import check_endpoint

_LEAST = {
    "port": 0,
    "max_body_bytes": 1,
    "max_choices": 1,
    "max_program_nodes": 1,
    "max_inputs": 1,
    "max_tools": 1,
    "max_stored_responses": 0,
    "max_stored_response_bytes": 0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Configuration of the HTTP server; InvalidParameterError names what can't be.

    Attributes:
        host, port: where it listens; port 0 takes a free one.
        served_model_names: names that requests may use for the model; empty: the engine's own.
        receive_timeout_s: seconds that a client has for a request, from the connection or the
            request's first bytes to its last; then it is a 408.
        max_body_bytes: larger bodies are refused with 413.
        max_choices: most choices (n times prompts) of one call, and most of its requests that
            are in the engine at once.
        max_program_nodes: most nodes of one program's graph.
        max_inputs: most inputs of one call for embeddings.
        max_tools: most tools of one call.
        max_stored_responses, max_stored_response_bytes: of each tenant, kept in memory for
            ``previous_response_id``; the least recently used are dropped.
        api_keys_file: a JSON file of tenants and their keys; None: no key is needed.
        cors_origins: origins that browsers may call from; empty: none.
        grace_period_s: on SIGTERM, seconds that running requests get to finish.
        tool_format, reasoning_format: override what the chat template suggests.
        otlp_endpoint: an OpenTelemetry collector's base URL, which gets a trace of each request;
            None: what OpenTelemetry's own environment variables say, if they do.
        access_log: one structured log line a request; prompts are never in it.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    served_model_names: tuple[str, ...] = ()
    receive_timeout_s: float = 60.0
    max_body_bytes: int = 32 * 2**20
    max_choices: int = 128
    max_program_nodes: int = 4096
    max_inputs: int = 2048
    max_tools: int = 512
    max_stored_responses: int = 1000
    max_stored_response_bytes: int = 64 * 2**20
    api_keys_file: Path | None = None
    cors_origins: tuple[str, ...] = ()
    grace_period_s: float = 30.0
    tool_format: str | None = None
    reasoning_format: str | None = None
    otlp_endpoint: str | None = None
    access_log: bool = False

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            if whole(name, getattr(self, name)) < least:
                raise InvalidParameterError(f"{name} must be at least {least}", param=name)
        if not 0 < number("receive_timeout_s", self.receive_timeout_s) < math.inf:
            raise InvalidParameterError(
                "receive_timeout_s must be above 0", param="receive_timeout_s"
            )
        if not 0 <= number("grace_period_s", self.grace_period_s) < math.inf:
            raise InvalidParameterError("grace_period_s must be at least 0", param="grace_period_s")
        check_endpoint(self.otlp_endpoint)

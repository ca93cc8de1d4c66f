"""Settings of the HTTP server. The engine has its own: ``runtime.engine.config``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ramet.runtime.api import log
from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.api.settings import Group, check_settings, setting
from ramet.runtime.server.observability.otlp_endpoint import check_endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """Settings of the HTTP server. ``InvalidParameterError`` names a field that is wrong."""

    served_model_names: tuple[str, ...] = setting(
        (),
        Group.BASIC,
        "Name of the model in requests; may be repeated.",
        option="served_model_name",
        metavar="NAME",
    )
    host: str = setting("127.0.0.1", Group.BASIC, "Address to listen on.", metavar="ADDRESS")
    port: int = setting(8000, Group.BASIC, "Port; 0: any free one.", least=0, most=65535)
    # Measured from the connection, or the request's first bytes, to its last; then it is a 408.
    receive_timeout_s: float = setting(
        60.0,
        Group.LIMITS,
        "Time for a client to send a whole request.",
        option="receive_timeout",
        metavar="SECONDS",
        above=0,
    )
    send_timeout_s: float = setting(
        60.0,
        Group.LIMITS,
        "Time for a client to take some of its answer.",
        option="send_timeout",
        metavar="SECONDS",
        above=0,
    )
    max_body_bytes: int = setting(
        32 << 20,
        Group.LIMITS,
        "Largest request body, in MiB.",
        option="max_body_mib",
        unit=1 << 20,
        least=1,
    )
    # Also the most requests of one call that are in the engine at the same time.
    max_choices: int = setting(
        128, Group.LIMITS, "Most choices of one call, n times prompts.", least=1
    )
    max_program_nodes: int = setting(
        4096, Group.LIMITS, "Most nodes of one program's graph.", least=1
    )
    max_inputs: int = setting(2048, Group.LIMITS, "Most inputs of one embeddings call.", least=1)
    max_tools: int = setting(512, Group.LIMITS, "Most tools of one call.", least=1)
    # The least recently used responses are dropped.
    max_stored_responses: int = setting(
        1000, Group.LIMITS, "Responses stored for each tenant.", least=0
    )
    max_stored_response_bytes: int = setting(
        64 << 20,
        Group.LIMITS,
        "Memory for each tenant's responses, in MiB.",
        option="max_stored_response_mib",
        unit=1 << 20,
        least=0,
    )
    # Keys on a command line can be seen by other users of the machine: the environment's
    # RAMET_API_KEY and the files can't.
    api_keys: tuple[str, ...] = setting(
        (),
        Group.OPERATION,
        "API key of clients; may be repeated.",
        option="api_key",
        metavar="KEY",
        secret=True,
    )
    api_key_file: Path | None = setting(
        None, Group.ACCESS, "File of API keys, one a line.", metavar="FILE"
    )
    api_keys_file: Path | None = setting(
        None,
        Group.OPERATION,
        "JSON file of tenants and their API keys.",
        option="api_keys",
        metavar="FILE",
    )
    ssl_certfile: Path | None = setting(
        None, Group.ACCESS, "Certificate chain for HTTPS, in PEM.", metavar="FILE"
    )
    ssl_keyfile: Path | None = setting(
        None, Group.ACCESS, "Private key, if not in the certificate's file.", metavar="FILE"
    )
    ssl_password_file: Path | None = setting(
        None, Group.ACCESS, "Password of the private key.", metavar="FILE"
    )
    cors_origins: tuple[str, ...] = setting(
        (),
        Group.OPERATION,
        "Allowed CORS origin; may be repeated.",
        option="cors_origin",
        metavar="ORIGIN",
    )
    # Names of the machine itself always are; others could be of a page's site (DNS rebinding).
    allowed_hosts: tuple[str, ...] = setting(
        (),
        Group.ACCESS,
        "Name of a server on a loopback address in requests; may be repeated.",
        option="allowed_host",
        metavar="NAME",
    )
    grace_period_s: float = setting(
        30.0,
        Group.OPERATION,
        "Grace period on shutdown.",
        option="grace",
        metavar="SECONDS",
        least=0,
    )
    unknown_fields: str = setting(
        "refuse",
        Group.LIMITS,
        "Unknown fields of a body: a 400, or a warning in the answer.",
        metavar="HOW",
        choices=("refuse", "warn"),
    )
    tool_format: str | None = setting(
        None,
        Group.CHAT,
        "Tool call format, if not the template's: a name, or a JSON file.",
        metavar="NAME",
    )
    reasoning_format: str | None = setting(
        None, Group.CHAT, "Reasoning format, if not the template's.", metavar="NAME"
    )
    otlp_endpoint: str | None = setting(
        None, Group.ACCESS, "OpenTelemetry collector to send traces to.", metavar="URL"
    )
    log_level: str = setting(
        "info",
        Group.ACCESS,
        f"Least important messages to log: {', '.join(log.LEVELS)}.",
        metavar="LEVEL",
        choices=log.LEVELS,
    )
    log_format: str = setting(
        "text",
        Group.ACCESS,
        "Format of the log: text, or json (an object a line).",
        metavar="FORMAT",
        choices=log.FORMATS,
    )
    stats_interval_s: float = setting(
        10.0,
        Group.ACCESS,
        "Seconds between lines with the engine's rates, while it is busy; 0: none.",
        option="stats_interval",
        metavar="SECONDS",
        least=0,
    )
    metering_log: Path | None = setting(
        None,
        Group.ACCESS,
        "File to append each request's token counts to, as JSON lines.",
        metavar="FILE",
    )
    access_log: bool = setting(
        False, Group.OPERATION, "Log requests as JSON, without prompts.", metavar=""
    )

    def __post_init__(self) -> None:
        check_settings(self)
        check_endpoint(self.otlp_endpoint)
        for name in ("ssl_keyfile", "ssl_password_file"):
            if getattr(self, name) is not None and self.ssl_certfile is None:
                raise InvalidParameterError(f"{name} needs ssl_certfile", param=name)

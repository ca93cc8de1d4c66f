"""Every option of ``ramet serve``, declared once: its name, type, bounds, default and help.

The command line, the environment and the configuration file are all read into this model, and
what it holds becomes the fields of ``EngineConfig`` and ``ServerConfig`` that it names. Nothing of
the runtime is imported here, so that ``--help`` is quick.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from ramet.cli.config_file import read_config_file

ENV_PREFIX = "RAMET_"

_MODEL = "Options"
_CAPACITY = "Capacity"
_CHAT = "Chat"
_OPERATION = "Operation"
_ENGINE = "Engine, in detail"
_LIMITS = "Limits"
ADVANCED = frozenset({_ENGINE, _LIMITS})
"""Groups that only ``--help-all`` shows."""


@dataclass(frozen=True, slots=True)
class Option:
    """What a setting means.

    Attributes:
        panel: the group that the help shows it in.
        help: one line.
        metavar: what its value is called.
        sets: ``engine.`` or ``server.``, and the field of ``EngineConfig`` or ``ServerConfig`` that
            it sets; empty: none.
        unit: what its value is multiplied by for that.
    """

    panel: str
    help: str
    metavar: str = "N"
    sets: str = ""
    unit: int = 1


def _split(value: Any) -> Any:
    """A text is a list with commas: an environment variable has no other way."""
    return value.split(",") if isinstance(value, str) else value


Texts = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...], NoDecode, BeforeValidator(_split)
]
Count = Annotated[int | None, Field(ge=1, lt=2**31)]
"""At least one; None: the default of what it sets."""


class ServeSettings(BaseSettings):
    """The settings; the command line goes before the environment, and that before the file.

    Raises:
        ConfigurationError: the file can't be read, or has a key that is no setting.
        pydantic.ValidationError: a value is wrong.
    """

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX, env_ignore_empty=True, extra="forbid", frozen=True
    )

    config: Annotated[
        Path | None,
        Option(_MODEL, "YAML file of these options, by their names.", "FILE"),
    ] = None
    model: Annotated[
        str,
        Option(_MODEL, "A name that ramet info lists, or a file.", "NAME"),
    ] = "smollm2"
    served_model_name: Annotated[
        Texts,
        Option(_MODEL, "Name that requests use; may be repeated.", "NAME"),
    ] = ()
    host: Annotated[
        str,
        Field(min_length=1),
        Option(_MODEL, "Address to listen on.", "ADDRESS", sets="server.host"),
    ] = "127.0.0.1"
    port: Annotated[
        int,
        Field(ge=0, le=65535),
        Option(_MODEL, "Port; 0 takes a free one.", sets="server.port"),
    ] = 8000
    device: Annotated[
        str,
        Option(_MODEL, "Where it runs: auto, cpu, cuda, cuda:1.", "DEVICE", sets="engine.device"),
    ] = "auto"
    threads: Annotated[
        Count,
        Field(le=1024),
        Option(
            _MODEL, "Threads that compute; one a core, if not given.", sets="engine.num_threads"
        ),
    ] = None

    max_num_seqs: Annotated[
        Count,
        Option(_CAPACITY, "Sequences that run at once.", sets="engine.max_num_seqs"),
    ] = None
    max_waiting: Annotated[
        Count, Option(_CAPACITY, "Requests that may wait.", sets="engine.max_waiting")
    ] = None
    max_context_len: Annotated[
        Count,
        Option(_CAPACITY, "Most tokens of a request.", sets="engine.max_context_len"),
    ] = None
    cache_mib: Annotated[
        Count,
        Option(
            _CAPACITY,
            "Memory for keys and values, in MiB.",
            sets="engine.cache_bytes",
            unit=1 << 20,
        ),
    ] = None
    prefix_store: Annotated[
        str | None,
        Option(
            _CAPACITY,
            "Folder that keeps hot prefixes over a restart.",
            "FOLDER",
            sets="engine.prefix_store",
        ),
    ] = None

    tool_format: Annotated[
        str | None,
        Option(_CHAT, "How the model writes tool calls.", "NAME", sets="server.tool_format"),
    ] = None
    reasoning_format: Annotated[
        str | None,
        Option(_CHAT, "How the model marks its reasoning.", "NAME", sets="server.reasoning_format"),
    ] = None

    api_keys: Annotated[
        Path | None,
        Option(
            _OPERATION, "JSON file of tenants and their keys.", "FILE", sets="server.api_keys_file"
        ),
    ] = None
    cors_origin: Annotated[
        Texts,
        Option(
            _OPERATION,
            "Origin that browsers may call from.",
            "ORIGIN",
            sets="server.cors_origins",
        ),
    ] = ()
    access_log: Annotated[
        bool,
        Option(_OPERATION, "Log a line a request, without prompts.", "", sets="server.access_log"),
    ] = False
    otlp_endpoint: Annotated[
        str | None,
        Option(
            _OPERATION, "OpenTelemetry collector that gets traces.", "URL", "server.otlp_endpoint"
        ),
    ] = None
    grace: Annotated[
        float,
        Field(ge=0, allow_inf_nan=False),
        Option(
            _OPERATION,
            "For running requests at the end.",
            "SECONDS",
            sets="server.grace_period_s",
        ),
    ] = 30.0

    policy: Annotated[
        str | None,
        Option(_ENGINE, "Order of requests among equals.", "NAME", sets="engine.policy"),
    ] = None
    max_tokens_per_step: Annotated[
        Count,
        Option(_ENGINE, "Tokens of one step.", sets="engine.max_tokens_per_step"),
    ] = None
    max_logits_per_step: Annotated[
        Count,
        Option(_ENGINE, "Rows of logits of one step.", sets="engine.max_logits_per_step"),
    ] = None
    max_wait: Annotated[
        float | None,
        Field(ge=0),
        Option(_ENGINE, "Who has waited longer goes first.", "SECONDS", sets="engine.max_wait_s"),
    ] = None
    max_draft_len: Annotated[
        int | None,
        Field(ge=0, lt=2**31),
        Option(
            _ENGINE, "Tokens guessed ahead of a sequence; 0: none.", sets="engine.max_draft_len"
        ),
    ] = None
    page_size: Annotated[Count, Option(_ENGINE, "Tokens of a page.", sets="engine.page_size")] = (
        None
    )
    grammar_threads: Annotated[
        Count,
        Option(_ENGINE, "Threads that compile constraints.", sets="engine.grammar_threads"),
    ] = None
    grammar_mib: Annotated[
        Count,
        Option(
            _ENGINE,
            "Memory for compiled constraints, in MiB.",
            sets="engine.grammar_bytes",
            unit=1 << 20,
        ),
    ] = None
    grammar_cache: Annotated[
        str | None,
        Option(
            _ENGINE,
            "Folder that keeps the automata of constraints over a restart.",
            "FOLDER",
            sets="engine.grammar_cache",
        ),
    ] = None
    prefix_store_mib: Annotated[
        int | None,
        Field(ge=0, lt=2**31),
        Option(
            _ENGINE,
            "Most that the prefix store takes, in MiB.",
            sets="engine.prefix_store_bytes",
            unit=1 << 20,
        ),
    ] = None
    record_trace: Annotated[
        str | None,
        Option(
            _ENGINE,
            "Record which prefixes are asked for when; no text is kept.",
            "FILE",
            sets="engine.record_trace",
        ),
    ] = None
    seed: Annotated[
        int | None,
        Option(_ENGINE, "Makes requests that name no seed repeatable.", sets="engine.seed"),
    ] = None

    receive_timeout: Annotated[
        float | None,
        Field(gt=0, allow_inf_nan=False),
        Option(
            _LIMITS,
            "For a client to send a whole request.",
            "SECONDS",
            sets="server.receive_timeout_s",
        ),
    ] = None
    max_body_mib: Annotated[
        Count,
        Option(
            _LIMITS,
            "Largest body of a request, in MiB.",
            sets="server.max_body_bytes",
            unit=1 << 20,
        ),
    ] = None
    max_choices: Annotated[
        Count,
        Option(_LIMITS, "Choices of one call, n times prompts.", sets="server.max_choices"),
    ] = None
    max_inputs: Annotated[
        Count,
        Option(_LIMITS, "Inputs of one call for embeddings.", sets="server.max_inputs"),
    ] = None
    max_program_nodes: Annotated[
        Count,
        Option(_LIMITS, "Nodes of one program's graph.", sets="server.max_program_nodes"),
    ] = None
    max_tools: Annotated[Count, Option(_LIMITS, "Tools of one call.", sets="server.max_tools")] = (
        None
    )
    max_stored_responses: Annotated[
        Count,
        Option(_LIMITS, "Responses kept for each tenant.", sets="server.max_stored_responses"),
    ] = None
    max_stored_response_mib: Annotated[
        Count,
        Option(
            _LIMITS,
            "Memory for them, in MiB.",
            sets="server.max_stored_response_bytes",
            unit=1 << 20,
        ),
    ] = None

    @field_validator("*", mode="before")
    @classmethod
    def _a_flag_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        """YAML reads ``port: yes`` as true, which Python takes for 1."""
        assert info.field_name is not None
        if isinstance(value, bool) and cls.model_fields[info.field_name].annotation is not bool:
            raise PydanticCustomError("flag", "Input should not be yes or no")
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """What is given, then the environment, then the file that either of them names."""
        del dotenv_settings, file_secret_settings
        path = init_settings().get("config") or env_settings().get("config")
        if path is None:
            return init_settings, env_settings
        known = frozenset(cls.model_fields) - {"config"}
        in_file = InitSettingsSource(settings_cls, read_config_file(Path(path), known))
        return init_settings, env_settings, in_file

    def engine_options(self) -> dict[str, Any]:
        """The fields of ``EngineConfig`` that were set."""
        return self._fields_of("engine.")

    def server_options(self) -> dict[str, Any]:
        """The fields of ``ServerConfig`` that were set."""
        names = {"served_model_names": self.served_model_name or (self.model,)}
        return names | self._fields_of("server.")

    def _fields_of(self, part: str) -> dict[str, Any]:
        fields = {}
        for name, option in options():
            value = getattr(self, name)
            if option.sets.startswith(part) and value is not None:
                fields[option.sets.removeprefix(part)] = (
                    value if option.unit == 1 else value * option.unit
                )
        return fields


def options() -> Iterator[tuple[str, Option]]:
    """Every setting's name, and what it means."""
    for name, field in ServeSettings.model_fields.items():
        yield name, next(each for each in field.metadata if isinstance(each, Option))

"""The options of ``ramet serve``, derived from the settings of the engine and the server.

Options come from the command line, the environment and the configuration file, in this order.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationInfo, create_model, field_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from ramet.cli.config_file import read_config_file
from ramet.runtime.api.settings import Group, Setting, settings_of
from ramet.runtime.engine.config import EngineConfig
from ramet.runtime.server.config import ServerConfig

ENV_PREFIX = "RAMET_"

_INT_LIMIT = 2**31


@dataclass(frozen=True, slots=True)
class Option:
    """An option of the command.

    Attributes:
        setting: its declaration.
        config, field: what it sets; None: nothing but the command itself.
    """

    setting: Setting
    config: type[EngineConfig | ServerConfig] | None = None
    field: str = ""


class ServeSettings(BaseSettings):
    """The values of all options. ``SERVE_SETTINGS`` adds one field for each derived option.

    Raises:
        ConfigurationError: the file can't be read, or has an unknown key.
        pydantic.ValidationError: a value is wrong.
    """

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
        defer_build=True,  # until a server starts: other commands only list the options
    )

    config: Annotated[
        Path | None,
        Option(Setting(group=Group.BASIC, help="YAML file of these options.", metavar="FILE")),
    ] = None
    model: Annotated[
        str,
        Option(
            Setting(group=Group.BASIC, help="Model name (see ramet info) or file.", metavar="NAME")
        ),
    ] = "smollm2"
    download: Annotated[
        bool,
        Option(
            Setting(
                group=Group.ENGINE,
                help="Download OWNER/NAME from a Hugging Face hub (extra hub).",
            )
        ),
    ] = False

    @field_validator("*", mode="before")
    @classmethod
    def _reject_boolean_numbers(cls, value: Any, info: ValidationInfo) -> Any:
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
        """Orders the sources: arguments, the environment, the file that either of them names."""
        del dotenv_settings, file_secret_settings
        path = init_settings().get("config") or env_settings().get("config")
        if path is None:
            return init_settings, env_settings
        known = frozenset(cls.model_fields) - {"config"}
        in_file = InitSettingsSource(settings_cls, read_config_file(Path(path), known))
        return init_settings, env_settings, in_file

    def engine_options(self) -> dict[str, Any]:
        """The fields of ``EngineConfig`` that were set."""
        return self._fields_of(EngineConfig)

    def server_options(self) -> dict[str, Any]:
        """The fields of ``ServerConfig`` that were set; requests name ``model`` by default."""
        return {"served_model_names": (self.model,), **self._fields_of(ServerConfig)}

    def _fields_of(self, config: type) -> dict[str, Any]:
        return {
            option.field: value * option.setting.unit if option.setting.unit != 1 else value
            for name, option in options()
            if option.config is config
            and name in self.model_fields_set
            and (value := getattr(self, name)) not in (None, ())
        }


def _split(value: Any) -> Any:
    """Environment variables give a list as a text with commas."""
    return value.split(",") if isinstance(value, str) else value


_Texts = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...], NoDecode, BeforeValidator(_split)
]


def _field_definitions() -> dict[str, Any]:
    """Pydantic fields of the derived options, grouped as in the help."""
    found: list[tuple[str, Option, Any, Any]] = []
    for config in (ServerConfig, EngineConfig):
        for field, (declared, kind, default) in settings_of(config).items():
            if declared.group is not None:
                option = Option(declared, config, field)
                found.append((declared.option or field, option, kind, default))
    groups = list(Group)
    found.sort(key=lambda each: groups.index(each[1].setting.group or Group.BASIC))
    return {name: _definition(option, kind, default) for name, option, kind, default in found}


def _definition(option: Option, kind: Any, default: Any) -> tuple[Any, Any]:
    """An option's type with its bounds, and its default, in the option's unit."""
    declared = option.setting
    kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    if typing.get_origin(kind) is tuple:
        return Annotated[_Texts, option], default
    if int in kinds:
        limit = _INT_LIMIT if declared.least is not None and declared.most is None else None
        shown = None if default is None else default // declared.unit
        return Annotated[kind, Field(ge=declared.least, le=declared.most, lt=limit), option], shown
    if float in kinds:
        bounds = Field(ge=declared.least, gt=declared.above, allow_inf_nan=not declared.finite)
        return Annotated[kind, bounds, option], default
    if kind is str:
        return Annotated[str, Field(min_length=1), option], default
    return Annotated[kind, option], default


SERVE_SETTINGS: type[ServeSettings] = create_model(
    "ServeSettings", __base__=ServeSettings, **_field_definitions()
)
"""The model of all options."""


def options() -> Iterator[tuple[str, Option]]:
    """All options by name."""
    for name, field in SERVE_SETTINGS.model_fields.items():
        yield name, next(each for each in field.metadata if isinstance(each, Option))

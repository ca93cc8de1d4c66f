"""Settings: fields of configuration dataclasses, each declared once with its bounds and help.

The configuration checks its values against the declaration, and the command line, the environment
and the configuration file derive their options from it.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import types
import typing
from functools import cache
from pathlib import Path
from typing import Any

from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.api.validate import flag, number, text, whole


class Group(enum.StrEnum):
    """Groups of options in the help, in the order in which they are shown."""

    BASIC = "Options"
    CAPACITY = "Capacity"
    CHAT = "Chat"
    OPERATION = "Operation"
    ACCESS = "Access and log"
    ENGINE = "Engine, in detail"
    LIMITS = "Limits"

    @property
    def is_advanced(self) -> bool:
        """Only ``--help-all`` shows it."""
        return self in (Group.ACCESS, Group.ENGINE, Group.LIMITS)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The declaration of a configuration field for operators: bounds and help.

    Attributes:
        group: the group of its option; None: it has no option.
        help: one line.
        option: its option's name in Python; empty: the field's.
        metavar: the placeholder of its value in the help.
        unit: the option counts in multiples of this.
        least, most: bounds of the field, inclusive.
        above: exclusive lower bound.
        finite: refuses infinity; NaN is always refused.
        choices: the permitted values; empty: any.
        secret: it is left out of the configuration's representation.
    """

    group: Group | None
    help: str
    option: str = ""
    metavar: str = "N"
    unit: int = 1
    least: float | None = None
    most: float | None = None
    above: float | None = None
    finite: bool = True
    choices: tuple[str, ...] = ()
    secret: bool = False

    def check(self, name: str, value: Any) -> None:
        """Checks a number against the bounds, or a text against the choices.

        Raises:
            InvalidParameterError: it is out of bounds, or no choice.
        """
        if isinstance(value, str):
            if self.choices and value not in self.choices:
                raise InvalidParameterError(
                    f"unknown {name} {value!r}; available: {', '.join(self.choices)}", param=name
                )
            return
        problem = ""
        if self.above is not None and not value > self.above:
            problem = f"above {self.above:g}"
        elif self.least is not None and not value >= self.least:
            problem = f"at least {self.least:g}"
        elif self.most is not None and not value <= self.most:
            problem = f"at most {self.most:g}"
        elif math.isnan(value) or (self.finite and math.isinf(value)):
            problem = "a finite number"
        if problem:
            raise InvalidParameterError(f"{name} must be {problem}", param=name)


def setting(default: Any, group: Group | None, help: str, **declared: Any) -> Any:
    """A dataclass field that is a setting; see ``Setting`` for ``declared``."""
    declaration = Setting(group=group, help=help, **declared)
    return dataclasses.field(
        default=default, metadata={_KEY: declaration}, repr=not declaration.secret
    )


def settings_of(config: type) -> dict[str, tuple[Setting, Any, Any]]:
    """A configuration's settings by field name: the declaration, its type and its default."""
    kinds = _kinds(config)
    return {
        field.name: (field.metadata[_KEY], kinds[field.name], field.default)
        for field in dataclasses.fields(config)
        if _KEY in field.metadata
    }


def check_settings(config: Any) -> None:
    """Checks types and bounds of all settings of a configuration.

    Raises:
        InvalidParameterError: names the first field that is wrong.
    """
    for name, (declaration, kind, _) in settings_of(type(config)).items():
        value = getattr(config, name)
        kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
        if value is None and types.NoneType in kinds:
            continue
        if bool in kinds:
            flag(name, value)
        elif int in kinds:
            declaration.check(name, whole(name, value))
        elif float in kinds:
            declaration.check(name, number(name, value))
        elif str in kinds and not isinstance(value, Path):
            declaration.check(name, text(name, value))


_KEY = "setting"


@cache
def _kinds(config: type) -> dict[str, Any]:
    return typing.get_type_hints(config)

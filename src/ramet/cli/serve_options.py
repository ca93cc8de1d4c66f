"""Turns the options of ``ramet serve`` into a command, and its input into settings."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer
from annotated_types import Ge, Le
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from typer.core import TyperOption

from ramet.cli.serve_settings import ENV_PREFIX, SERVE_SETTINGS, Option, ServeSettings, options
from ramet.runtime.api.errors import ConfigurationError

_UNSHOWN = (None, (), False)
"""Defaults that the help leaves out."""


def as_command(serve: Callable[[dict[str, Any]], None]) -> Callable[..., None]:
    """Wraps ``serve``, which takes the given options as a dict, with a parameter per option."""

    @functools.wraps(serve)
    def command(**given: Any) -> None:
        del given["help_all"]
        first = given.pop("first")
        if first is not None and given["model"] not in (None, first):
            raise typer.BadParameter("can't be combined with --model", param_hint="MODEL")
        given["model"] = first or given["model"]
        serve({name: value for name, value in given.items() if value not in (None, [])})

    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=_annotation(SERVE_SETTINGS.model_fields[name], option),
        )
        for name, option in options()
    ]
    help_all = typer.Option(
        "--help-all", is_eager=True, callback=_show_all, help="Also show advanced options."
    )
    parameters.append(
        inspect.Parameter(
            "help_all",
            inspect.Parameter.KEYWORD_ONLY,
            default=False,
            annotation=Annotated[bool, help_all],
        )
    )
    parameters.append(
        inspect.Parameter(
            "first",
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[str | None, typer.Argument(metavar="[MODEL]", hidden=True)],
        )
    )
    vars(command)["__signature__"] = inspect.Signature(parameters)
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def read_settings(given: Mapping[str, Any]) -> ServeSettings:
    """Merges the command line, the environment and the configuration file.

    Raises:
        typer.BadParameter: a value of the command line is wrong.
        ConfigurationError: the environment or the file is wrong.
    """
    try:
        return SERVE_SETTINGS(**given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name, reason = str(first["loc"][0]), first["msg"]
        variable = f"{ENV_PREFIX}{name.upper()}"
        if name in given:
            raise typer.BadParameter(reason, param_hint=_flag(name)) from None
        if os.environ.get(variable):
            raise ConfigurationError(f"the environment's {variable}: {reason}") from None
        path = given.get("config") or os.environ.get(f"{ENV_PREFIX}CONFIG")
        raise ConfigurationError(f"the configuration {path}: {name}: {reason}") from None


def _annotation(field: FieldInfo, option: Option) -> Any:
    """The type of an option's parameter, whose default is None."""
    bounds = {type(each): each for each in field.metadata}
    least, most = bounds.get(Ge), bounds.get(Le)
    default, declared = field.default, option.setting
    info = typer.Option(
        help=declared.help if default in _UNSHOWN else f"{declared.help} ({default})",
        rich_help_panel=declared.group,
        metavar=declared.metavar,
        hidden=declared.group is not None and declared.group.is_advanced,
        min=None if least is None else least.ge,
        max=None if most is None else most.le,
        show_default=False,
    )
    kind: Any = field.annotation
    return Annotated[list[str] | None if default == () else kind | None, info]


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _show_all(context: typer.Context, wanted: bool) -> None:
    if not wanted:
        return
    for parameter in context.command.params:
        if isinstance(parameter, TyperOption):
            parameter.hidden = False
    typer.echo(context.get_help())
    raise typer.Exit

"""Programs and their arguments, as the command line names them."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ramet.runtime.api.names import nearest

if TYPE_CHECKING:
    from ramet.lang import Program

_MODULE = "__ramet_program__"
"""Module name of a program's file, whose own name may clash with another module's."""


def load_program(target: str) -> Program[..., Any]:
    """Loads the program that ``path.py:name`` names, or raises BadParameter."""
    from ramet.lang import Program

    file, colon, name = target.rpartition(":")
    path = Path(file)
    if not colon:
        raise typer.BadParameter(f"{target!r} must name a program in a file, as path.py:program")
    if not path.is_file():
        raise typer.BadParameter(f"there is no file {file!r}")
    spec = importlib.util.spec_from_file_location(_MODULE, path)
    if spec is None or spec.loader is None:
        raise typer.BadParameter(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    # Modules in its folder can be imported, after everything else: a file must not shadow a module
    # of the standard library, here or in child processes.
    sys.path.append(str(path.parent.resolve()))
    spec.loader.exec_module(module)
    programs = {key: value for key, value in vars(module).items() if isinstance(value, Program)}
    if name not in programs:
        known = f"it has {', '.join(sorted(programs)) or 'none'}{nearest(name, programs)}"
        raise typer.BadParameter(f"{file} has no program {name!r}; {known}")
    return programs[name]


def parse_arguments(
    program: Program[..., Any], words: list[str], settings: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Parses ``--name value`` pairs to the program's arguments, validated by their annotations.

    Args:
        settings: further names that may be given, with their types. A flag may have no value.
    """
    parameters = dict(_parameters(program))
    types = {**(settings or {}), **{name: _type(each) for name, each in parameters.items()}}
    arguments: dict[str, Any] = {}
    index = 0
    while index < len(words):
        word = words[index]
        name, equals, value = word.removeprefix("--").partition("=")
        name = name.replace("-", "_")
        index += 1
        is_negated = types.get(name.removeprefix("no_")) is bool and name not in types
        if is_negated and word.startswith("--") and not equals:
            arguments[name.removeprefix("no_")] = False
            continue
        if not word.startswith("--") or name not in types:
            takes = ", ".join(f"--{each.replace('_', '-')}" for each in parameters) or "none"
            hint = nearest(name, types)
            raise typer.BadParameter(
                f"{word!r}: unknown argument; {program.name} takes {takes}{hint}"
            )
        has_value = index < len(words) and not words[index].startswith("--")
        if types[name] is bool and not equals and not has_value:
            arguments[name] = True
            continue
        if not equals:
            if index == len(words):
                raise typer.BadParameter(f"--{name} needs a value")
            value, index = words[index], index + 1
        arguments[name] = _validated(name, value, types[name])
    for name, parameter in parameters.items():
        if parameter.default is inspect.Parameter.empty and name not in arguments:
            raise typer.BadParameter(f"{program.name} needs --{name}")
    return arguments


def run_settings(program: Program[..., Any]) -> dict[str, Any]:
    """The sampling parameters and settings of a run that words may set, with their types."""
    from ramet.lang.types.options import SamplingOptions

    own = dict(_parameters(program))
    known = {**typing.get_type_hints(SamplingOptions), "timeout_s": float}
    return {name: type_ for name, type_ in known.items() if name not in own}


def describe_arguments(program: Program[..., Any]) -> str:
    """The program's own arguments for its help, a line each."""
    lines = [f"Arguments of {program.name}:"]
    for name, parameter in _parameters(program):
        kind = inspect.formatannotation(_type(parameter)).replace("typing.", "")
        is_required = parameter.default is parameter.empty
        default = "required" if is_required else f"default: {parameter.default!r}"
        lines.append(f"  --{name.replace('_', '-')}  {kind}  [{default}]")
    names = ", ".join(f"--{name.replace('_', '-')}" for name in run_settings(program))
    return "\n".join([*lines, "", f"Settings of its run: {names}"])


def _parameters(program: Program[..., Any]) -> Iterator[tuple[str, inspect.Parameter]]:
    signature = inspect.signature(program.function, eval_str=True)
    for name, parameter in list(signature.parameters.items())[1:]:
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            yield name, parameter


def _type(parameter: inspect.Parameter) -> Any:
    return str if parameter.annotation is parameter.empty else parameter.annotation


def _validated(name: str, text: str, type_: Any) -> Any:
    from pydantic import TypeAdapter, ValidationError

    adapter = TypeAdapter(type_)
    try:
        return adapter.validate_strings(text)
    except ValidationError as as_text:
        try:
            return adapter.validate_json(text)
        except ValidationError as as_json:
            is_json = as_json.errors()[0]["type"] != "json_invalid"
            reason = (as_json if is_json else as_text).errors()[0]["msg"]
            raise typer.BadParameter(f"--{name} {text!r}: {reason}") from None

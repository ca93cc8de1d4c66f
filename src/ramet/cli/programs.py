"""``ramet demo``, ``ramet run`` and ``ramet graph``."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ramet.cli.options import Model

if TYPE_CHECKING:
    from ramet.lang import Program

_EXTRA = {"allow_extra_args": True, "ignore_unknown_options": True}
_MODULE = "__ramet_program__"
"""Module name of a program's file, whose own name may clash with another module's."""

Target = Annotated[str, typer.Argument(help="Program to use, as path.py:program.")]


def register(app: typer.Typer) -> None:
    app.command()(demo)
    app.command(context_settings=_EXTRA)(run)
    app.command(context_settings=_EXTRA)(graph)


def demo(model: Model = "smollm2") -> None:
    """Run a demo agent on a real model, and show what the engine saved."""
    from ramet.cli.demo import run_demo

    run_demo(model)


def run(
    ctx: typer.Context,
    target: Target,
    model: Model = "smollm2",
    url: Annotated[
        str | None, typer.Option(help="Server to use instead of an in-process engine.")
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(help="Write a trace: .html (timeline) or .json (Chrome trace format)."),
    ] = None,
) -> None:
    """Run a program: ramet run file.py:program --argument value ...

    Put arguments that share a name with an option of this command after --.
    """
    from ramet.cli.live import run_live
    from ramet.lang import connect
    from ramet.runtime.engine import Engine

    if trace is not None and (trace.suffix not in (".html", ".json") or not trace.parent.is_dir()):
        raise typer.BadParameter(f"{trace} must be a .html or .json file in an existing folder")
    program = load_program(target)
    arguments = parse_arguments(program, ctx.args)
    if url is not None:
        run_live(program, arguments, connect(url), trace)
        return
    with Engine.from_model(model) as engine:
        run_live(program, arguments, engine, trace)


def graph(
    ctx: typer.Context,
    target: Target,
    form: Annotated[
        Literal["tree", "mermaid", "json"], typer.Option("--format", help="Output format.")
    ] = "tree",
) -> None:
    """Print a program's request graph, as far as it is known without a model."""
    program = load_program(target)
    traced = program.graph(**parse_arguments(program, ctx.args))
    match form:
        case "tree":
            print(traced.tree())
        case "mermaid":
            print(traced.mermaid())
        case "json":
            print(traced.json())


def load_program(target: str) -> Program[..., Any]:
    """Loads the program that ``path.py:name`` names, or raises BadParameter."""
    from ramet.lang import Program

    file, colon, name = target.rpartition(":")
    path = Path(file)
    if not colon or not path.is_file():
        raise typer.BadParameter(f"{target!r} must name a program in a file, as path.py:program")
    spec = importlib.util.spec_from_file_location(_MODULE, path)
    if spec is None or spec.loader is None:
        raise typer.BadParameter(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    # Modules beside it can be imported, after everything else: a file must not shadow a module of
    # the standard library, here or in child processes.
    sys.path.append(str(path.parent.resolve()))
    spec.loader.exec_module(module)
    programs = {key: value for key, value in vars(module).items() if isinstance(value, Program)}
    if name not in programs:
        raise typer.BadParameter(f"{file} has no program {name!r}; it has {sorted(programs)}")
    return programs[name]


def parse_arguments(program: Program[..., Any], words: list[str]) -> dict[str, Any]:
    """Parses ``--name value`` pairs to the program's arguments, validated by their annotations."""
    from pydantic import TypeAdapter, ValidationError

    signature = inspect.signature(program.function, eval_str=True)
    parameters = {
        name: parameter
        for name, parameter in list(signature.parameters.items())[1:]
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    }
    arguments: dict[str, Any] = {}
    rest = iter(words)
    for word in rest:
        name, equals, value = word.removeprefix("--").partition("=")
        name = name.replace("-", "_")
        if not word.startswith("--") or name not in parameters:
            raise typer.BadParameter(
                f"{word!r}: unknown argument; {program.name} takes {sorted(parameters)}"
            )
        text = value if equals else next(rest, None)
        if text is None:
            raise typer.BadParameter(f"--{name} needs a value")
        annotation = parameters[name].annotation
        adapter = TypeAdapter(str if annotation is inspect.Parameter.empty else annotation)
        try:
            arguments[name] = adapter.validate_strings(text)
        except ValidationError as as_text:
            try:
                arguments[name] = adapter.validate_json(text)
            except ValidationError as as_json:
                is_json = as_json.errors()[0]["type"] != "json_invalid"
                reason = (as_json if is_json else as_text).errors()[0]["msg"]
                raise typer.BadParameter(f"--{name} {text!r}: {reason}") from None
    missing = [
        name
        for name, parameter in parameters.items()
        if parameter.default is inspect.Parameter.empty and name not in arguments
    ]
    if missing:
        raise typer.BadParameter(f"{program.name} needs --{missing[0]}")
    return arguments

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
"""What a program's file is called as a module: its own name may be that of another."""

Target = Annotated[str, typer.Argument(help="A file and a program in it: path.py:program.")]


def register(app: typer.Typer) -> None:
    app.command()(demo)
    app.command(context_settings=_EXTRA)(run)
    app.command(context_settings=_EXTRA)(graph)


def demo(model: Model = "smollm2") -> None:
    """Run an agent program on a real model, streamed, with what the engine saved."""
    from ramet.cli.demo import run_demo

    run_demo(model)


def run(
    ctx: typer.Context,
    target: Target,
    model: Model = "smollm2",
    url: Annotated[
        str | None, typer.Option(help="A server to run on instead of an engine here.")
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(help="Write the trace: .html a timeline, .json Chrome's trace format."),
    ] = None,
) -> None:
    """Run a program: ramet run file.py:program --argument value ...

    Arguments that are named like an option of this command follow a --.
    """
    from ramet.cli.live import run_live
    from ramet.lang import connect
    from ramet.runtime.engine import Engine

    if trace is not None and (trace.suffix not in (".html", ".json") or not trace.parent.is_dir()):
        raise typer.BadParameter(f"{trace} is no .html or .json file in a folder that exists")
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
        Literal["tree", "mermaid", "json"], typer.Option("--format", help="What to print.")
    ] = "tree",
) -> None:
    """Print a program's request graph, without a model, as far as it can be known."""
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
    """The program that ``path.py:name`` names; BadParameter says what is wrong with it."""
    from ramet.lang import Program

    file, colon, name = target.rpartition(":")
    path = Path(file)
    if not colon or not path.is_file():
        raise typer.BadParameter(f"{target!r} is not a file and a program in it, path.py:program")
    spec = importlib.util.spec_from_file_location(_MODULE, path)
    if spec is None or spec.loader is None:
        raise typer.BadParameter(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    # Its neighbours can be imported, behind everything else: a file that is named like a module
    # of the standard library must not stand in for it, here or in processes that are started later.
    sys.path.append(str(path.parent.resolve()))
    spec.loader.exec_module(module)
    programs = {key: value for key, value in vars(module).items() if isinstance(value, Program)}
    if name not in programs:
        raise typer.BadParameter(f"{file} has no program {name!r}; it has {sorted(programs)}")
    return programs[name]


def parse_arguments(program: Program[..., Any], words: list[str]) -> dict[str, Any]:
    """``--name value`` pairs as the program's arguments, each validated as its annotation says."""
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
            raise typer.BadParameter(f"{word!r}: {program.name} takes {sorted(parameters)}")
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

"""``ramet demo``, ``ramet run``, ``ramet graph``, ``ramet replay`` and ``ramet diff``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ramet.cli.options import Model
from ramet.cli.program_arguments import (
    describe_arguments,
    load_program,
    parse_arguments,
    run_settings,
)

_EXTRA = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}

Target = Annotated[
    str | None, typer.Argument(help="Program to use, as path.py:program.", show_default=False)
]
Help = Annotated[
    bool, typer.Option("--help", help="Show this help, and the program's own arguments.")
]
Url = Annotated[str | None, typer.Option(help="Server to use instead of an in-process engine.")]
TraceFile = Annotated[Path, typer.Argument(help="Trace of a run, saved as .ramet.json.")]


def register(app: typer.Typer) -> None:
    app.command()(demo)
    app.command(context_settings=_EXTRA)(run)
    app.command(context_settings=_EXTRA)(graph)
    app.command()(replay)
    app.command()(diff)


def demo(model: Model = "smollm2") -> None:
    """Run a demo agent on a real model, and show what the engine saved."""
    from ramet.cli.demo import run_demo

    run_demo(model)


def run(
    ctx: typer.Context,
    target: Target = None,
    model: Model = "smollm2",
    url: Url = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            help="Write a trace: .html (timeline), .ramet.json (to replay) or .json (Chrome's)."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print the result alone.")] = False,
    help_: Help = False,
) -> None:
    """Run a program: ramet run file.py:program --argument value --temperature 0.5 ...

    Prints its result to the standard output, and calls and cost to the standard error. Put
    arguments that share a name with an option of this command after --.
    """
    from ramet.cli.live import run_live

    if _shows_help(ctx, target, help_):
        return
    if trace is not None and (trace.suffix not in (".html", ".json") or not trace.parent.is_dir()):
        raise typer.BadParameter(f"{trace} must be a .html or .json file in an existing folder")
    program = load_program(target or "")
    settings = run_settings(program)
    given = parse_arguments(program, ctx.args, settings)
    chosen = {name: given.pop(name) for name in settings.keys() & given.keys()}
    with _backend(model, url) as backend:
        run_live(program.using(**chosen), given, backend, trace, as_json=as_json, is_quiet=quiet)


def graph(
    ctx: typer.Context,
    target: Target = None,
    form: Annotated[
        Literal["tree", "mermaid", "json"], typer.Option("--format", help="Output format.")
    ] = "tree",
    help_: Help = False,
) -> None:
    """Print a program's request graph, as far as it is known without a model."""
    if _shows_help(ctx, target, help_):
        return
    program = load_program(target or "")
    traced = program.graph(**parse_arguments(program, ctx.args))
    match form:
        case "tree":
            print(traced.tree())
        case "mermaid":
            print(traced.mermaid())
        case "json":
            print(traced.json())


def replay(
    file: TraceFile,
    target: Annotated[str, typer.Argument(help="The trace's program, as path.py:program.")],
    model: Annotated[
        str | None, typer.Option(help="Ask this model again, and not the trace.")
    ] = None,
    url: Url = None,
) -> None:
    """Run a recorded run again, from its recorded answers or on a model, and show differences.

    Exits with 1 where the runs differ.
    """
    from ramet.lang import RecordedBackend, Trace
    from ramet.lang import replay as replay_trace

    trace = Trace.load(file)
    program = load_program(target)
    if model is None and url is None:
        outcome = replay_trace(trace, program, backend=RecordedBackend(trace))
    else:
        with _backend(model or "", url) as backend:
            outcome = replay_trace(trace, program, backend=backend)
    print(outcome)
    raise typer.Exit(0 if outcome.is_same else 1)


def diff(a: TraceFile, b: TraceFile) -> None:
    """Show where two recorded runs part: settings, texts by variable, and cost.

    Exits with 1 where their texts differ.
    """
    from ramet.lang import Trace

    found = Trace.load(a).diff(Trace.load(b))
    print(found)
    raise typer.Exit(1 if found else 0)


def _shows_help(ctx: typer.Context, target: str | None, is_wanted: bool) -> bool:
    """Prints the help, with the program's arguments where one is named, if it is asked for."""
    if target is None and not is_wanted:
        raise typer.BadParameter("name a program, as path.py:program")
    if is_wanted:
        print(ctx.get_help())
        if target is not None:
            print(describe_arguments(load_program(target)))
    return is_wanted


@contextmanager
def _backend(model: str, url: str | None) -> Iterator[Any]:
    """A connection to a server, or else an engine that is closed at the end."""
    from ramet.lang import connect
    from ramet.runtime.engine import Engine

    if url is not None:
        yield connect(url)
        return
    with Engine.from_model(model) as engine:
        yield engine

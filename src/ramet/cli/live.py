"""``ramet run``: shows a program's run live in the terminal, and prints its result."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json
from rich.console import Console
from rich.pretty import Pretty

from ramet.cli.run_view import report, watch

if TYPE_CHECKING:
    from ramet.lang import Program


def run_live(
    program: Program[..., Any],
    arguments: dict[str, Any],
    backend: Any,
    trace: Path | None,
    console: Console | None = None,
    *,
    as_json: bool = False,
    is_quiet: bool = False,
) -> None:
    """Runs a program: its result goes to the standard output, its calls, cost and graph to
    ``console``, by default the standard error.

    The trace is written even if the run fails.
    """
    console = console or Console(stderr=True, quiet=is_quiet)
    run = program.using(backend=backend).start(**arguments)
    try:
        watch(run, console)
    finally:
        if trace is not None:
            run.trace.save(trace)
            console.print(f"\ntrace: {trace}")
    console.print(report(run))
    result = run.result
    if as_json:
        print(to_json(result, fallback=str).decode())
    elif isinstance(result, str):
        print(result)
    else:
        Console().print(Pretty(result))

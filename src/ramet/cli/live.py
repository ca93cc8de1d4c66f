"""``ramet run``: shows a program's run live in the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

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
) -> None:
    """Runs a program and shows its calls live, then its result, cost and graph.

    The trace is written even if the run fails.
    """
    console = console or Console()
    run = program.using(backend=backend).start(**arguments)
    try:
        watch(run, console)
    finally:
        if trace is not None:
            run.trace.save(trace)
            console.print(f"\ntrace: {trace}")
    console.print()
    console.print(Pretty(run.result))
    console.print(report(run))

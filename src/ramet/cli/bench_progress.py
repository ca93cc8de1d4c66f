"""The live progress of ``ramet bench``, on stderr where that is a terminal."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from ramet.bench.job import Workload
from ramet.bench.targets import Outcome


class BenchProgress:
    """A bar for the run that goes on, with its target, requests, tokens and errors."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("", note="")

    def begin(self, workload: Workload, target: str, title: str) -> Callable[[Outcome], None]:
        """Starts the bar of a run; the result is called at the end of each of its jobs."""
        self._progress.reset(
            self._task, total=len(workload.jobs), description=f"{title}, {target}", note=""
        )
        num_tokens = num_errors = 0

        def on_end(outcome: Outcome) -> None:
            nonlocal num_tokens, num_errors
            num_tokens += outcome.num_output_tokens
            num_errors += outcome.error is not None
            note = f"{num_tokens} tokens" + (f", {num_errors} errors" if num_errors else "")
            self._progress.update(self._task, advance=1, note=note)

        return on_end

    def __enter__(self) -> BenchProgress:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

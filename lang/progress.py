"""A bar that shows how many runs of a batch have ended, and how many of them failed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape

_PAUSE_S = 0.1
"""Between two updates of a notebook's bar."""

NoteEnd = Callable[[bool], None]
"""Takes whether a run has failed."""


@contextmanager
def progress_bar(name: str, total: int, *, shown: bool) -> Iterator[NoteEnd]:
    """Shows a bar on the terminal's standard error, or in the notebook's cell."""
    if not shown:
        yield lambda _: None
        return
    from rich.console import Console

    console = Console(stderr=True)
    with _notebook_bar(name, total) if console.is_jupyter else _terminal_bar(name, total) as note:
        yield note


@contextmanager
def _terminal_bar(name: str, total: int) -> Iterator[NoteEnd]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    num_failed = 0
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    failures = TextColumn("{task.fields[failures]}", style="red")
    with Progress(*columns, TimeElapsedColumn(), failures, console=Console(stderr=True)) as bar:
        task = bar.add_task(name, total=total, failures="")

        def note(has_failed: bool) -> None:
            nonlocal num_failed
            num_failed += has_failed
            bar.update(task, advance=1, failures=_failures(num_failed))

        yield note


@contextmanager
def _notebook_bar(name: str, total: int) -> Iterator[NoteEnd]:
    from IPython.display import HTML, display  # type: ignore[import-not-found, unused-ignore]

    num_ended = num_failed = 0
    next_update = 0.0

    def html() -> object:
        return HTML(
            f'{escape(name)} <progress value="{num_ended}" max="{total}"></progress> '
            f"{num_ended}/{total} {_failures(num_failed)}"
        )

    def note(has_failed: bool) -> None:
        nonlocal num_ended, num_failed, next_update
        num_ended, num_failed = num_ended + 1, num_failed + has_failed
        if time.monotonic() >= next_update or num_ended == total:
            next_update = time.monotonic() + _PAUSE_S
            handle.update(html())

    handle = display(html(), display_id=True)
    yield note


def _failures(number: int) -> str:
    return f"{number} failed" if number else ""

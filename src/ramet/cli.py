"""The ``ramet`` command."""

from __future__ import annotations

import typer

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.callback()
def root() -> None:
    """Structured generation and agent serving."""


def main() -> None:
    """Entry point of the ``ramet`` command."""
    app()

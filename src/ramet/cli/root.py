"""The command's root."""

from __future__ import annotations

import sys

import typer

from ramet.cli import bench, check, model, programs, serve
from ramet.runtime.api.errors import RametError

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="rich")


@app.callback()
def root() -> None:
    """Ramet: structured generation and agent serving."""


for group in (programs, serve, check, bench, model):
    group.register(app)


def main() -> None:
    """Entry point: an error of Ramet's own is one line on stderr and exit code 1."""
    try:
        app()
    except RametError as error:
        print(f"ramet: {error.message}", file=sys.stderr)
        sys.exit(1)

"""The command's root."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from ramet.cli import bench, check, model, programs, serve, warm
from ramet.runtime.api.errors import RametError

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="rich")


def _show_version(wanted: bool) -> None:
    if wanted:
        import importlib.metadata

        typer.echo(f"ramet {importlib.metadata.version('ramet')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version."),
    ] = False,
) -> None:
    """Ramet: structured generation and agent serving."""
    del version


for group in (programs, serve, check, bench, model, warm):
    group.register(app)


def main() -> None:
    """Entry point: an error of Ramet's own is one line on stderr and exit code 1."""
    try:
        app()
    except RametError as error:
        print(f"ramet: {error.message}", file=sys.stderr)
        sys.exit(1)

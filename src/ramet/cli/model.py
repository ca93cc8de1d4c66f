"""``ramet info``."""

from __future__ import annotations

from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    app.command()(info)


def info(
    model: Annotated[
        str | None, typer.Argument(help="A model's short name, GGUF file or folder.")
    ] = None,
) -> None:
    """Show versions, this machine's kernels and the available models; or one model's card.

    The card has the model's architecture, context, stored types, tokenizer, abilities of its chat
    template, and the memory that serving it takes.
    """
    if model is not None:
        _print_card(model)
        return
    import importlib.metadata
    import platform

    from rich.console import Console
    from rich.table import Table

    from ramet.jit.disk import cache_folders, writable_folder
    from ramet.kernels.cpu_support.features import describe
    from ramet.runtime.api.errors import ModelLoadError
    from ramet.runtime.api.warm_up import is_first_start
    from ramet.runtime.model.files.locate import PACKAGED_MODELS, locate_model
    from ramet.runtime.model.runners import describe_default

    table = Table(show_header=False, box=None)
    table.add_column()
    table.add_column(overflow="fold")  # don't truncate paths
    table.add_row("python", platform.python_version())
    for package in ("ramet", "torch", "triton", "numba", "numpy"):
        try:
            table.add_row(package, importlib.metadata.version(package))
        except importlib.metadata.PackageNotFoundError:
            table.add_row(package, "not installed")
    table.add_row("models run on", describe_default())
    try:
        for fact, value in describe().items():
            table.add_row(fact, value)
    except ValueError as wrong:
        table.add_row("int8 dot product", str(wrong))
    state = "will be compiled at the first start" if is_first_start() else "complete"
    folder = writable_folder() or f"{cache_folders()[0]}, which isn't writable"
    table.add_row("compiled code", f"{folder}: {state}")
    for name, packaged in PACKAGED_MODELS.items():
        try:
            table.add_row(f"model {name}", str(locate_model(name)))
        except ModelLoadError:
            table.add_row(f"model {name}", f"not installed: {packaged.install}")
    Console().print(table)


def _print_card(model: str) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from ramet.cli.model_card import model_card

    table = Table(show_header=False, box=None)
    table.add_column()
    table.add_column(overflow="fold")
    for fact, value in model_card(model):
        table.add_row(fact, Text(value))
    Console().print(table)

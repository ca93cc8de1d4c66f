"""``ramet warm``, and the bar of a first start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console


def register(app: typer.Typer) -> None:
    app.command()(warm)


def warm(
    model: Annotated[
        str | None,
        typer.Option(help="Also compile what this model needs: a name, or a file or folder."),
    ] = None,
) -> None:
    """Compile machine code ahead of the first start, as for a container image.

    The code goes where `ramet info` shows, for the CPU that this runs on. With a model, a request
    with a JSON schema is run on it, so that nothing is left to be compiled.
    """
    from rich.console import Console

    console = Console()
    compile_with_bar(console)
    if model is not None:
        from ramet.grammars import JsonSchema
        from ramet.runtime.api.params import SamplingParams
        from ramet.runtime.api.request import Request
        from ramet.runtime.engine import Engine

        with console.status(f"Running {model}"), Engine.from_model(model) as engine:
            tokens = tuple(engine.tokenizer.encode("A number:"))
            schema = JsonSchema({"type": "integer", "maximum": 99, "minimum": 0})
            params = SamplingParams(max_tokens=8, temperature=0)
            request = Request(prompt_token_ids=tokens, params=params, constraint=schema)
            engine.submit(request).result()
    console.print("compiled code: complete")


def compile_with_bar(console: Console) -> None:
    """Compiles what isn't on disk yet, with a bar that shows how far it is."""
    import os

    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from ramet.runtime.api.warm_up import compile_ahead, is_first_start

    if not is_first_start():
        return
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("Compiling kernels, once", total=None)
        compile_ahead(
            lambda done, total: progress.update(task, completed=done, total=total),
            num_processes=min(4, os.cpu_count() or 1),
        )

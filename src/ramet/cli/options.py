"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Model = Annotated[str, typer.Option(help="Model name (see ramet info) or GGUF file.")]
Threads = Annotated[
    int | None, typer.Option(min=1, max=1024, help="Compute threads; default: one per core.")
]

"""Options that several commands take."""

from __future__ import annotations

from typing import Annotated

import typer

Model = Annotated[
    str, typer.Option(help="A known model's name (ramet info lists them) or a GGUF file.")
]
Threads = Annotated[
    int | None, typer.Option(min=1, max=1024, help="Threads that compute; default: one a core.")
]

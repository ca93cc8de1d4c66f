"""The ``ramet`` command: one file per group of commands. Each command imports what it needs when it
runs, so that ``ramet --help`` is fast.

The package itself imports nothing: a server's engine process imports the command's script again
and would be delayed.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ramet.cli.root import app

__all__ = ["app", "main"]


def main() -> None:
    """Entry point of the command."""
    gc.disable()  # imports produce almost no garbage
    from ramet.cli.root import main as run

    gc.enable()
    run()


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ramet.cli.root import app

    return app

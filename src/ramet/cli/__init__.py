"""The ``ramet`` command: a file a group of commands. Each imports what it runs when it runs it, so
that ``ramet --help`` is quick.

The package itself imports nothing: a server's engine process, which imports the command's script
once more, would wait for it.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ramet.cli.root import app

__all__ = ["app", "main"]


def main() -> None:
    """Entry point of the command."""
    gc.disable()  # hardly anything that imports make goes again
    from ramet.cli.root import main as run

    gc.enable()
    run()


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ramet.cli.root import app

    return app

"""The ``ramet`` command: a file a group of commands. Each imports what it runs when it runs it, so
that ``ramet --help`` is quick."""

from ramet.cli.main import app, main

__all__ = ["app", "main"]

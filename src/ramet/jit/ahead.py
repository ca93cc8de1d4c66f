"""Compilation ahead of need, in background processes.

One process compiles one function at a time, and its other threads make little progress during that.
So code that isn't on disk yet is compiled by separate processes; they share the work by the
functions' lock files.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pkgutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from importlib import import_module
from itertools import chain
from types import ModuleType
from typing import Protocol

from ramet.jit.disk import writable_folder
from ramet.jit.functions import Function

logger = logging.getLogger("ramet.jit")

_NICENESS = 5
_POLL_INTERVAL_S = 0.1


class Compiled(Protocol):
    """Code that is compiled once an installation."""

    @property
    def is_compiled(self) -> bool:
        """Whether its machine code is on disk."""

    @property
    def is_busy(self) -> bool:
        """Whether another process is compiling it."""

    def load(self) -> None:
        """Loads or compiles it."""


def compiled_of(*names: str) -> Iterator[Compiled]:
    """All compiled code of modules, and of all modules in packages, in order.

    That is the functions with signatures, and what a module's ``likely_ops`` returns, if it has
    that. A module is imported when its turn comes.
    """
    for name in names:
        package = import_module(name)
        inside = pkgutil.walk_packages(getattr(package, "__path__", ()), f"{name}.")
        for module_name in (name, *(each.name for each in inside)):
            module = _imported(module_name)
            if module is None:
                continue
            for value in list(vars(module).values()):
                if isinstance(value, Function) and value.py_func.__module__ == module_name:
                    yield value
            yield from getattr(module, "likely_ops", list)()


def _imported(name: str) -> ModuleType | None:
    """A module; None if it needs a package that isn't installed, as optional backends do."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "ramet":
            raise
        return None


def is_compiled(*names: str) -> bool:
    """Whether all code of these modules and packages is on disk."""
    return all(each.is_compiled for each in compiled_of(*names))


def load(*names: str) -> None:
    """Loads all code of these modules and packages; compiles what isn't on disk."""
    for each in compiled_of(*names):
        each.load()


def compile_in_background(*names: str) -> subprocess.Popen[bytes] | None:
    """Starts a process that compiles the modules' code that isn't on disk.

    Returns None if no process can be started, or no folder takes its files. The process ends with
    this one; the caller waits for it, or terminates it.
    """
    if writable_folder() is None or getattr(sys, "frozen", False) or not sys.executable:
        return None
    command = [sys.executable, "-P", "-m", "ramet.jit", str(os.getpid()), *names]
    try:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL)
    except OSError as error:
        logger.warning("no process to compile in can be started: %s", error)
        return None


def compile_all(names: Iterable[str]) -> None:
    """Compiles the modules' code that isn't on disk: the background process's work.

    Code that another process is compiling comes last: by then that is done, or has failed.
    """
    postponed: list[Compiled] = []
    for each in chain(compiled_of(*names), postponed):
        if each.is_busy and each not in postponed:
            postponed.append(each)
        elif not each.is_compiled:
            each.load()


def exit_with_parent(parent: int) -> None:
    """Exits when the parent process has ended, even while compiling.

    Files are written atomically, so none is left unfinished.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_POLL_INTERVAL_S)
        os._exit(0)

    if os.getppid() != parent:
        sys.exit()
    threading.Thread(target=watch, name="ramet-parent", daemon=True).start()


def lower_priority() -> None:
    """Lowers this process's scheduling priority, where the system supports that."""
    with contextlib.suppress(AttributeError, OSError):
        os.nice(_NICENESS)

"""Compiling ahead of need, in processes beside this one.

One process compiles one function at a time, and holds up its other threads while it does. So what
isn't on disk yet is compiled by processes of their own; they share the work by the functions'
lock files.
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
from typing import Protocol

from ramet.jit.disk import writable_folder
from ramet.jit.functions import Function

logger = logging.getLogger("ramet.jit")

_NICENESS = 5
_LOOK_S = 0.1


class Compiled(Protocol):
    """What is compiled once an installation."""

    @property
    def is_compiled(self) -> bool:
        """Whether its machine code is on disk."""

    @property
    def is_busy(self) -> bool:
        """Whether another process is compiling it."""

    def load(self) -> None:
        """Loads or compiles it."""


def compiled_of(*names: str) -> Iterator[Compiled]:
    """All that is to be compiled of modules, and of all modules in packages, in their order.

    That is the functions with signatures, and what a module's ``likely_ops`` returns, if it has
    that. A module is imported when its turn comes.
    """
    for name in names:
        package = import_module(name)
        inside = pkgutil.walk_packages(getattr(package, "__path__", ()), f"{name}.")
        for module_name in (name, *(each.name for each in inside)):
            module = import_module(module_name)
            for value in list(vars(module).values()):
                if isinstance(value, Function) and value.py_func.__module__ == module_name:
                    yield value
            yield from getattr(module, "likely_ops", list)()


def is_compiled(*names: str) -> bool:
    """Whether all of these modules and packages is on disk."""
    return all(each.is_compiled for each in compiled_of(*names))


def load(*names: str) -> None:
    """Loads all of these modules and packages; compiles what isn't on disk."""
    for each in compiled_of(*names):
        each.load()


def compile_beside(*names: str) -> subprocess.Popen[bytes] | None:
    """Starts a process that compiles what of these modules is not on disk; None if it can't be.

    The process ends with this one. Who is given it waits for it, or ends it.
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
    """What such a process does.

    What others are at is left for last: then it is done, or they have ended.
    """
    left: list[Compiled] = []
    for each in chain(compiled_of(*names), left):
        if each.is_busy and each not in left:
            left.append(each)
        elif not each.is_compiled:
            each.load()


def end_with(parent: int) -> None:
    """Ends this process when its parent has ended, in the midst of compiling: a file is on disk
    whole or not at all."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_S)
        os._exit(0)

    if os.getppid() != parent:
        sys.exit()
    threading.Thread(target=watch, name="ramet-parent", daemon=True).start()


def step_back() -> None:
    """Leaves the processors to others that want them, where the system knows of that."""
    with contextlib.suppress(AttributeError, OSError):
        os.nice(_NICENESS)

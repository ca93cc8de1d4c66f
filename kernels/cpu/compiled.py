"""Compiled functions, cached on disk.

An ``Op`` is one operation of a model's program: a function of four addresses that is compiled when
its address is first asked for. ``jit`` is numba's for everything else.

numba's own cache notices a change in the file of the function alone, and never serves functions
made by a factory. This one keys on the function's unique name, its signature, the CPU, the
versions of numba and Python, and the text of every file of this package, so what is loaded is what
would be compiled. It reads from any of its folders and writes to the first that lets it; with none,
everything works and is compiled anew in each process.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba import types
from numba.core import compiler
from numba.core.ccallback import CFunc
from numba.core.compiler_lock import global_compiler_lock
from numba.core.serialize import dumps
from numba.core.typing import signature

_ADDRESSES = (types.int64, types.int64, types.int64, types.int64)
_PACKAGE = Path(__file__).parent


def cache_folders() -> tuple[Path, ...]:
    """Where compiled functions are looked for, and kept in the first that is writable.

    ``RAMET_CACHE_DIR`` if it is set; then beside the sources; then in the user's cache folder.
    """
    chosen = os.environ.get("RAMET_CACHE_DIR")
    if chosen:
        return (Path(chosen),)
    user = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return (_PACKAGE / "__pycache__", user / "ramet" / "kernels")


@cache
def _stamp() -> bytes:
    """A digest of everything that compiled code depends on, apart from function and CPU."""
    digest = hashlib.sha256(f"{numba.__version__} {llvmlite.__version__} {sys.version}".encode())
    for path in sorted([*_PACKAGE.glob("*.py"), *_PACKAGE.parent.glob("*_cpu.py")]):
        digest.update(path.read_bytes())
    return digest.digest()


class _DiskCache:
    """What numba asks of a function's cache: one file a signature and CPU."""

    def __init__(self, name: str) -> None:
        self._name = name

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        target_context.refresh()
        name = self._file_name(sig, target_context.codegen())
        for folder in cache_folders():
            try:
                payload = pickle.loads((folder / name).read_bytes())
            except (OSError, pickle.UnpicklingError, EOFError):
                continue
            return compiler.CompileResult._rebuild(target_context, *payload)
        return None

    def save_overload(self, sig: Any, result: Any) -> None:
        name = self._file_name(sig, result.codegen)
        data = dumps(result._reduce())
        for folder in cache_folders():
            with contextlib.suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
                _write(folder / name, data)
                return

    def _file_name(self, sig: Any, codegen: Any) -> str:
        key = repr((self._name, str(sig), codegen.magic_tuple())).encode() + _stamp()
        return f"ramet-{self._name}-{hashlib.sha256(key).hexdigest()[:24]}.bin"


def _write(path: Path, data: bytes) -> None:
    """Writes a file so that no other process ever sees a part of it."""
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(data)
    try:
        os.replace(file.name, path)
    except OSError:
        os.unlink(file.name)
        raise


class Op:
    """An operation of a program, ``function(stage, step, counter, thread)``: four int64.

    ``stage`` is the address of the operation's record, ``step`` that of the step's, ``counter``
    that of an int64 that hands out tasks, ``thread`` the number of the calling thread. ``name``
    must be unique.
    """

    def __init__(self, name: str, function: Callable[[int, int, int, int], None]) -> None:
        function.__name__ = function.__qualname__ = name
        self.name = name
        self._function = function
        self._compiled: Any = None

    @property
    def address(self) -> int:
        """The address of the machine code; compiles or loads it at first."""
        with global_compiler_lock:
            if self._compiled is None:
                arguments = (signature(types.void, *_ADDRESSES).args, types.void)
                options = {"nopython": True, "nogil": True, "boundscheck": False}
                compiled: Any = CFunc(self._function, arguments, locals={}, options=options)
                compiled._cache = _DiskCache(self.name)
                compiled.compile()
                self._compiled = compiled
            return int(self._compiled.address)


def op(function: Callable[[int, int, int, int], None]) -> Op:
    """Makes an ``Op`` of a module's function, under the function's name."""
    return Op(function.__name__, function)


def jit(signature_or_none: Any = None, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """``numba.njit`` that releases the interpreter lock, with this module's cache."""

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher = numba.njit(nogil=True, **options)(function)
        dispatcher._cache = _DiskCache(f"{function.__module__}.{function.__qualname__}")
        if signature_or_none is not None:
            dispatcher.compile(signature_or_none)
        return dispatcher

    return decorate

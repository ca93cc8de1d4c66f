"""Where compiled code is kept from one process to the next.

A file holds the machine code of one function for one signature. Its name is a digest of all that
the code depends on: the function's sources (``sources.py``), the signature, the CPU, the versions
of Python and the libraries; so what is loaded is what would be compiled. Its content begins with
a checksum: a damaged file is passed over, and written anew.

Files are read from any of the folders and written to the first that lets it; with none, everything
works and is compiled anew in each process. Processes that need the same function at the same time
share the work: one compiles it, and the others wait for its file.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
from numba.core import sigutils
from numba.core.registry import cpu_target

from ramet.jit.stored import from_bytes, to_bytes

_VERSIONS = f"2 {numba.__version__} {llvmlite.__version__} {np.__version__} {sys.version}"
_CHECKSUM_BYTES = 32


def cache_folders() -> tuple[Path, ...]:
    """Where compiled functions are looked for, and kept in the first that is writable.

    ``RAMET_CACHE_DIR`` if it is set; else beside the sources, then in the user's cache folder, if
    the user has one.
    """
    chosen = os.environ.get("RAMET_CACHE_DIR")
    if chosen:
        return (Path(os.path.expanduser(chosen)),)
    beside = Path(__file__).parent / "__pycache__"
    user = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    # Without a home the tilde stays; and the XDG specification ignores what is relative.
    return (beside, Path(user) / "ramet" / "kernels") if os.path.isabs(user) else (beside,)


def writable_folder() -> Path | None:
    """The folder that takes what is compiled, or None."""
    for folder in cache_folders():
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            if os.access(folder, os.W_OK | os.X_OK):
                return folder
    return None


class DiskCache:
    """What numba asks of a function's cache.

    Args:
        name: what the files are called.
        digest: tells the function's sources from others; asked for once, at first use.
    """

    def __init__(self, name: str, digest: Callable[[], bytes]) -> None:
        self._name = name
        self._digest = digest
        self._file_names: dict[tuple[Any, ...], str] = {}

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        name = self._file_name(sig)
        for folder in cache_folders():
            data = _read(folder / name)
            if data is not None:
                return from_bytes(data, target_context)
        return None

    def save_overload(self, sig: Any, result: Any) -> None:
        name = self._file_name(sig)
        data = to_bytes(result)
        data = hashlib.sha256(data).digest() + data
        for folder in cache_folders():
            with contextlib.suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
                _write(folder / name, data)
                return

    def has(self, sig: Any) -> bool:
        """Whether there is a file for a signature."""
        name = self._file_name(sig)
        return any(_is_there(folder / name) for folder in cache_folders())

    @contextlib.contextmanager
    def alone(self, sig: Any) -> Iterator[None]:
        """Lets no other process compile this meanwhile, unless it has been compiled."""
        if self.has(sig):
            yield
            return
        with contextlib.ExitStack() as held:
            folder = writable_folder()
            if folder is not None:
                held.enter_context(_locked(folder / self._lock_name(sig)))
            yield

    def is_busy(self, sig: Any) -> bool:
        """Whether another process, or another function of this one, is ``alone`` with it."""
        folder = writable_folder()
        return folder is not None and _is_locked(folder / self._lock_name(sig))

    @cached_property
    def _sources(self) -> bytes:
        return self._digest()

    def _lock_name(self, sig: Any) -> str:
        return f"{self._file_name(sig)}.lock"

    def _file_name(self, sig: Any) -> str:
        arguments, _ = sigutils.normalize_signature(sig)
        name = self._file_names.get(arguments)
        if name is None:
            key = repr((_VERSIONS, self._name, str(arguments), _machine())).encode()
            name = f"{self._name}-{hashlib.sha256(key + self._sources).hexdigest()[:24]}.bin"
            self._file_names[arguments] = name
        return name


@cache
def _machine() -> tuple[str, str, str]:
    """The triple, CPU and features that numba compiles for."""
    triple, cpu, features = cpu_target.target_context.codegen().magic_tuple()
    return triple, cpu, features


def _is_there(path: Path) -> bool:
    """Whether there is more of a file than its checksum; a system that went down leaves less."""
    try:
        return path.stat().st_size > _CHECKSUM_BYTES
    except OSError:
        return False


def _read(path: Path) -> bytes | None:
    """A file's content, or None if it isn't there or isn't what was written."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    checksum, data = data[:_CHECKSUM_BYTES], data[_CHECKSUM_BYTES:]
    return data if hashlib.sha256(data).digest() == checksum else None


def _write(path: Path, data: bytes) -> None:
    """Writes a file so that no other process ever sees a part of it."""
    descriptor, name = tempfile.mkstemp(dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
        os.chmod(name, 0o644)  # other users of the installation read it, too
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds a file that one process at a time may hold; where files can't be locked, nothing."""
    try:
        import fcntl

        file = path.open("w")
    except (ImportError, OSError):
        yield
        return
    with file:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # it may be another user's
                path.unlink()


def _is_locked(path: Path) -> bool:
    """Whether somebody holds a file by ``_locked``."""
    try:
        import fcntl

        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (ImportError, OSError):
        pass
    return False

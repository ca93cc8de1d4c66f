"""A cache of compiled code on disk, shared by processes.

A file holds the machine code of one function for one signature. Its name is a digest of everything
that the code depends on: the function's sources (``sources.py``), the signature, the CPU, the
versions of Python and the libraries. So loading gives what compiling would give. Its content begins
with a checksum of its name and data.

A file holds code and pickles: loading one is running a program. So files are loaded only if nobody
but root and the current user can have written them (``trusted_files``); permissions, and no secret
key, decide that, so that a cache which root fills in an image serves every user. A file that is
damaged, misplaced or not trusted is compiled and written again.

Files are read from any of the folders and written to the first writable one; without one,
everything works and each process compiles again. Processes that need the same function at the same
time share the work: one compiles it, and the others wait for its file.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
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
from ramet.trusted_files import UntrustedFileError, check_folder, make_folder, open_trusted

logger = logging.getLogger("ramet.jit")

_VERSIONS = f"3 {numba.__version__} {llvmlite.__version__} {np.__version__} {sys.version}"
_CHECKSUM_BYTES = 32


def cache_folders() -> tuple[Path, ...]:
    """The folders to load compiled functions from; the first writable one takes new ones.

    ``RAMET_CACHE_DIR`` if it is set; else the sources' ``__pycache__``, then the user's cache
    folder, if the user has one.
    """
    chosen = os.environ.get("RAMET_CACHE_DIR")
    if chosen:
        return (Path(os.path.expanduser(chosen)),)
    bytecode = Path(__file__).parent / "__pycache__"
    user = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    # Without a home the tilde stays; and the XDG specification ignores what is relative.
    return (bytecode, Path(user) / "ramet" / "kernels") if os.path.isabs(user) else (bytecode,)


def writable_folder() -> Path | None:
    """The folder that new compiled functions are written to, or None."""
    for folder in cache_folders():
        try:
            make_folder(folder)
            if os.access(folder, os.W_OK | os.X_OK):
                check_folder(folder)
                return folder
        except OSError as error:
            _report_untrusted(error)
    return None


class DiskCache:
    """A function's cache, with the methods that numba calls.

    Args:
        name: the beginning of the files' names.
        digest: returns a digest of the function's sources; called once, at first use.
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
                try:
                    return from_bytes(data, target_context)
                except Exception as error:  # whatever the content is, compiling helps
                    logger.warning("%s can't be loaded (%r): compiling again", folder / name, error)
        return None

    def save_overload(self, sig: Any, result: Any) -> None:
        name = self._file_name(sig)
        data = to_bytes(result)
        data = _checksum(name, data) + data
        for folder in cache_folders():
            try:
                make_folder(folder)
                check_folder(folder)
                _write(folder / name, data)
                return
            except OSError as error:
                _report_untrusted(error)

    def has(self, sig: Any) -> bool:
        """Whether there is a trusted file for a signature."""
        name = self._file_name(sig)
        return any(_is_there(folder / name) for folder in cache_folders())

    @contextlib.contextmanager
    def alone(self, sig: Any) -> Iterator[None]:
        """Keeps other processes from compiling this signature, unless it has been compiled."""
        if self.has(sig):
            yield
            return
        with contextlib.ExitStack() as held:
            folder = writable_folder()
            if folder is not None:
                held.enter_context(_locked(folder / self._lock_name(sig)))
            yield

    def is_busy(self, sig: Any) -> bool:
        """Whether another process, or another function of this one, holds ``alone``."""
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
    """Whether a trusted file has more than its checksum; a system that crashed may leave less."""
    try:
        with open_trusted(path) as file:
            return os.fstat(file.fileno()).st_size > _CHECKSUM_BYTES
    except OSError as error:
        _report_untrusted(error)
        return False


def _read(path: Path) -> bytes | None:
    """The content of a trusted file, or None if it doesn't exist or is damaged."""
    try:
        with open_trusted(path) as file:
            checksum, data = file.read(_CHECKSUM_BYTES), file.read()
    except OSError as error:
        _report_untrusted(error)
        return None
    return data if _checksum(path.name, data) == checksum else None


def _checksum(name: str, data: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\0" + data).digest()


def _report_untrusted(error: OSError) -> None:
    """Logs each untrusted file or folder once; folders that merely can't be used are not logged."""
    if isinstance(error, UntrustedFileError):
        _warn_once(str(error))


@cache
def _warn_once(reason: str) -> None:
    logger.warning("compiled code is neither loaded from there nor kept there: %s", reason)


def _write(path: Path, data: bytes) -> None:
    """Writes a file atomically."""
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
    """Holds a lock file exclusively; does nothing where files can't be locked."""
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
    """Whether a lock file is held by ``_locked``."""
    try:
        import fcntl

        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (ImportError, OSError):
        pass
    return False

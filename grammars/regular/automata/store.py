"""``AutomatonStore``: automata kept on disk, by what they were made from.

What takes long about a compilation is making automata, and an automaton is plain arrays: so these
are kept, and not compiled grammars, whose objects no file could hold safely. An entry is a file

    magic, checksum of the rest, num_states, num_classes, class_of, accepting, table

with little-endian integers. Its name is a hash of the description, of this package's code that
makes automata, and of the version of Unicode, so that another version's entries are never read.
An entry that is damaged, or that another user may have written, is made again; a disk that is full
or read-only stops nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import tempfile
import threading
import unicodedata
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

from ramet.trusted_files import UntrustedFileError, check_folder, make_folder, open_trusted

from .dfa import Dfa

logger = logging.getLogger("ramet.grammars")

_MAGIC = b"RametDfa"
_CHECK = 16
_HEADER = len(_MAGIC) + _CHECK + 8
_SUFFIX = ".dfa"
_LEAST_STATES = 24
"""A smaller automaton is made as fast as a file is read."""


class AutomatonStore:
    """A folder of automata. May be used from several threads and processes.

    Args:
        folder: made if it isn't there; it must be writable by its owner alone (``trusted_files``).
        max_bytes: how much is kept; what was used longest ago goes first.
    """

    def __init__(self, folder: str | os.PathLike[str], max_bytes: int = 256 << 20) -> None:
        self.folder = Path(folder)
        self.num_hits = 0
        self.num_written = 0
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        try:
            make_folder(self.folder, mode=0o700)
            check_folder(self.folder)
        except OSError as error:
            logger.warning("automata can't be kept in %s: %s", self.folder, error)
        self.num_bytes = sum(size for _, size, _ in self._entries())

    def get(self, description: str, make: Callable[[], Dfa], max_states: int) -> Dfa:
        """The automaton of a description, read, or made and kept."""
        path = self.folder / (self._name(description) + _SUFFIX)
        found = _read(path)
        if found is not None and found.num_states <= max_states:
            self.num_hits += 1
            with contextlib.suppress(OSError):
                os.utime(path)
            return found
        made = make()
        if found is None and made.num_states >= _LEAST_STATES:
            self._write(path, made)
        return made

    def _name(self, description: str) -> str:
        text = "\0".join((_code_version(), unicodedata.unidata_version, description))
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()

    def _write(self, path: Path, dfa: Dfa) -> None:
        body = b"".join(
            (
                np.array(dfa.table.shape, "<u4").tobytes(),
                dfa.class_of.tobytes(),
                dfa.accepting.astype(np.uint8).tobytes(),
                dfa.table.astype("<i4").tobytes(),
            )
        )
        data = _MAGIC + hashlib.blake2b(body, digest_size=_CHECK).digest() + body
        with contextlib.suppress(OSError), self._lock:
            check_folder(self.folder)
            self._make_room(len(data))
            # Another process sees all of an entry or nothing.
            handle, temporary = tempfile.mkstemp(dir=self.folder, suffix=".part")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(data)
                os.replace(temporary, path)
            except OSError:
                os.unlink(temporary)
                raise
            self.num_bytes += len(data)
            self.num_written += 1

    def _make_room(self, needed: int) -> None:
        if self.num_bytes + needed <= self._max_bytes:
            return
        entries = sorted(self._entries())
        self.num_bytes = sum(size for _, size, _ in entries)
        for _, size, path in entries:
            if self.num_bytes + needed <= self._max_bytes:
                return
            with contextlib.suppress(OSError):
                path.unlink()
                self.num_bytes -= size

    def _entries(self) -> list[tuple[float, int, Path]]:
        """When each entry was used, its size, its path."""
        found = []
        with contextlib.suppress(OSError):
            for path in self.folder.glob(f"*{_SUFFIX}"):
                with contextlib.suppress(OSError):
                    status = path.stat()
                    found.append((status.st_mtime, status.st_size, path))
        return found


def _read(path: Path) -> Dfa | None:
    """The automaton in a file; None if there is no sound one."""
    try:
        with open_trusted(path) as file:
            data = file.read()
    except UntrustedFileError as error:
        _warn_once(str(error))
        return None
    except OSError:
        return None
    body = data[len(_MAGIC) + _CHECK :]
    sound = hashlib.blake2b(body, digest_size=_CHECK).digest()
    if len(data) < _HEADER or data[: len(_MAGIC) + _CHECK] != _MAGIC + sound:
        return None
    num_states, num_classes = np.frombuffer(body[:8], "<u4").tolist()
    if len(body) != 8 + 256 + num_states + 4 * num_states * num_classes or num_states == 0:
        return None
    class_of = np.frombuffer(body, np.uint8, 256, 8)
    accepting = np.frombuffer(body, np.uint8, num_states, 8 + 256)
    table = np.frombuffer(body, "<i4", num_states * num_classes, 8 + 256 + num_states)
    if class_of.max() >= num_classes or table.min() < -1 or table.max() >= num_states:
        return None
    # Copies, so that they own aligned memory.
    shape = num_states, num_classes
    return Dfa(class_of.copy(), table.astype(np.int32).reshape(shape), accepting.astype(np.bool_))


@cache
def _warn_once(reason: str) -> None:
    logger.warning("an automaton is made again: %s", reason)


@cache
def _code_version() -> str:
    """A hash of the code that automata are made by."""
    digest = hashlib.blake2b(digest_size=16)
    folder = Path(__file__).parents[1]
    for path in sorted([*folder.rglob("*.py"), folder.parent / "pushdown" / "json_text.py"]):
        digest.update(path.read_bytes())
    return digest.hexdigest()

"""Files that only root and the current user can have written.

A file is as trustworthy as each user that may write to it, or replace it or a folder on its path.
So the file and its folder must belong to root or the current user and be writable by their owner
alone; the same holds for the folders above, where a sticky one (``/tmp``) may be writable by all.
Access control lists are covered: their mask is what the group's permission bits show. On systems
without POSIX owners (Windows) every file counts as trusted.
"""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path
from typing import BinaryIO

logger = logging.getLogger("ramet.files")

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class UntrustedFileError(PermissionError):
    """A file or folder that another user may have written."""


def make_folder(path: Path, mode: int = 0o755) -> None:
    """Makes a folder and its parents, writable by their owner alone under any umask.

    Folders that exist stay as they are.
    """
    if path.is_dir():
        return
    if path.parent != path:
        make_folder(path.parent)
    try:
        os.mkdir(path, mode)
    except FileExistsError:
        if not path.is_dir():
            raise


def check_folder(path: Path, *, allow_sticky: bool = False) -> Path:
    """The folder without symbolic links; ``UntrustedFileError`` if another user may write there.

    With ``allow_sticky``, others may add files but not replace the user's own, as in ``/tmp``.
    Raises another ``OSError`` if it doesn't exist or can't be looked into.
    """
    resolved = Path(os.path.realpath(path, strict=True))
    _check(resolved, os.stat(resolved), allow_sticky=allow_sticky)
    for above in resolved.parents:
        _check(above, os.stat(above), allow_sticky=True)
    return resolved


def open_trusted(path: Path) -> BinaryIO:
    """Opens a file to read; ``UntrustedFileError`` if another user may have written it.

    Raises another ``OSError`` if it doesn't exist or can't be read.
    """
    # Checks what has been opened, so that nothing can be put in its place after the check.
    resolved = check_folder(path.parent) / path.name
    return _checked(path, open(resolved, "rb", opener=_open_without_waiting))


def read_trusted(path: Path) -> bytes:
    """The content of a file that an operator names, symbolic links followed; see ``open_trusted``.

    Its folder may be a sticky one.
    """
    resolved = Path(os.path.realpath(path, strict=True))
    check_folder(resolved.parent, allow_sticky=True)
    with _checked(path, open(resolved, "rb", opener=_open_without_waiting)) as file:
        return file.read()


def warn_if_readable_by_others(path: Path, what: str) -> None:
    """Logs a warning if users outside of the file's group may read it."""
    if hasattr(os, "geteuid") and path.stat().st_mode & stat.S_IROTH:
        logger.warning("other users may read %s: chmod o-r %s", what, path)


def append_trusted(path: str | os.PathLike[str]) -> BinaryIO:
    """Opens a file to append to; a new one is readable and writable by its owner alone.

    Raises ``UntrustedFileError`` if it isn't a regular file or another user may write to it, and
    another ``OSError`` if it can't be opened.
    """
    return _checked(Path(path), open(path, "ab", opener=_open_without_waiting))


def _checked(path: Path, file: BinaryIO) -> BinaryIO:
    """``file``, which is closed if it isn't to be trusted."""
    try:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise UntrustedFileError(f"{path} is not a regular file")
        _check(path, status)
    except BaseException:
        file.close()
        raise
    return file


def _open_without_waiting(path: str, flags: int) -> int:
    # A pipe would wait for its other end.
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o600)


def _check(path: Path, status: os.stat_result, *, allow_sticky: bool = False) -> None:
    if not hasattr(os, "geteuid"):
        return
    if status.st_uid not in (0, os.geteuid()):
        raise UntrustedFileError(f"{path} belongs to another user (uid {status.st_uid})")
    if status.st_mode & _OTHERS_WRITE and not (allow_sticky and status.st_mode & stat.S_ISVTX):
        permissions = oct(stat.S_IMODE(status.st_mode))
        raise UntrustedFileError(f"others may write to {path} (mode {permissions})")

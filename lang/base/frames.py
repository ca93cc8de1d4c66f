"""Distinguishes user frames: places of calls, and tracebacks without internal frames."""

from __future__ import annotations

import asyncio
import concurrent.futures
import sys
from pathlib import Path
from types import FrameType, TracebackType

from ramet.runtime.api.errors import RametError

_OWN_FOLDERS = tuple(
    str(folder)
    for folder in (
        Path(__file__).parents[1],
        Path(str(asyncio.__file__)).parent,
        Path(str(concurrent.futures.__file__)).parent,
    )
)


def caller_place() -> str:
    """``file.py:line`` of the innermost frame that is the user's; empty if there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_own(frame):
        frame = frame.f_back
    if frame is None:
        return ""
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def hide_own_frames(error: BaseException) -> None:
    """Drops the machinery's frames from the tracebacks of an error and of its causes.

    An error that isn't one of Ramet's may be a fault of the machinery: it keeps what is below the
    user's last frame, and all if there is none.
    """
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        current.__traceback__ = _users(current.__traceback__, isinstance(current, RametError))
        current = current.__cause__ or current.__context__


def _users(traceback: TracebackType | None, is_deliberate: bool) -> TracebackType | None:
    entries = []
    while traceback is not None:
        entries.append(traceback)
        traceback = traceback.tb_next
    users = [index for index, entry in enumerate(entries) if not _is_own(entry.tb_frame)]
    if not users:
        return None if is_deliberate or not entries else entries[0]
    tail = [] if is_deliberate else range(users[-1] + 1, len(entries))
    kept: TracebackType | None = None
    for index in reversed([*users, *tail]):
        entry = entries[index]
        kept = TracebackType(kept, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return kept


def _is_own(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_OWN_FOLDERS)

"""Gives memory that was freed back to the system."""

from __future__ import annotations

import ctypes
import sys
from functools import cache


def release_free_memory() -> None:
    """Have the C library return its free pages, if it can (glibc); other threads go on.

    Grammars are made of many small arrays that come and go in another order, so freed memory lies
    between what is kept, and glibc returns by itself only what is at the heap's end.
    """
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> ctypes._NamedFuncPointer | None:
    if sys.platform != "linux":
        return None
    return getattr(ctypes.CDLL(None), "malloc_trim", None)

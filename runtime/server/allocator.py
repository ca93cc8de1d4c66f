"""Makes the C library's allocator return the memory of large bodies."""

from __future__ import annotations

import contextlib
import ctypes

_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
_LARGE_BYTES = 256 << 10
_NUM_ARENAS = 2


def return_large_blocks() -> None:
    """Has each large block mapped by itself, so that freeing it returns its memory.

    glibc's threshold grows with the largest block that was freed, up to 32 MiB: afterwards bodies
    come from the heaps of the threads that parse them, which small blocks behind them keep from
    shrinking. Setting it turns that off (https://man7.org/linux/man-pages/man3/mallopt.3.html).
    Does nothing where the C library has no ``mallopt``.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        mallopt(_M_ARENA_MAX, _NUM_ARENAS)

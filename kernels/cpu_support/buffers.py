"""Memory for compiled functions."""

from __future__ import annotations

import contextlib
import math
import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

CACHE_LINE = 64
_HUGE_PAGE = 2 * 2**20


def aligned_empty(shape: tuple[int, ...], dtype: npt.DTypeLike = np.uint8) -> npt.NDArray[Any]:
    """An uninitialised array that begins on a cache line."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    raw = np.empty(size + CACHE_LINE, np.uint8)
    start = -raw.ctypes.data % CACHE_LINE
    return raw[start : start + size].view(dtype).reshape(shape)


class Arena:
    """Uninitialised arrays side by side in huge pages, which the memory system reads in one go:
    it follows a stream from one small page to the next only after a miss. For what stays: the
    memory is freed with the last array. Where the system has no huge pages it is plain memory."""

    def __init__(self, slab_bytes: int = 32 * 2**20) -> None:
        self._slab_bytes = slab_bytes
        self._free: npt.NDArray[np.uint8] = np.empty(0, np.uint8)

    def empty(self, shape: tuple[int, ...], dtype: npt.DTypeLike = np.uint8) -> npt.NDArray[Any]:
        """An array that begins on a cache line."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        taken = -(-size // CACHE_LINE) * CACHE_LINE
        if taken > len(self._free):
            self._free = _huge_bytes(max(taken, self._slab_bytes))
        array = self._free[:size].view(dtype).reshape(shape)
        self._free = self._free[taken:]
        return array


def _huge_bytes(size: int) -> npt.NDArray[np.uint8]:
    """Zeros that begin on a huge page, if there are any, and take memory when they are written."""
    if hasattr(mmap, "MAP_PRIVATE"):
        memory = mmap.mmap(-1, size + _HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    else:
        memory = mmap.mmap(-1, size + _HUGE_PAGE)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a system without huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(memory, np.uint8)
    start = -whole.ctypes.data % _HUGE_PAGE
    return whole[start : start + size]


def lazy_zeros(shape: tuple[int, ...], dtype: npt.DTypeLike = np.uint8) -> npt.NDArray[Any]:
    """Zeros that take memory from the system only where they are written, a huge page at a time if
    there are any."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    return _huge_bytes(size).view(dtype).reshape(shape)

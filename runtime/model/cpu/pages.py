"""Pages of keys and values for the CPU kernels: their layout, copies, and storage as bytes."""

from __future__ import annotations

import math
import mmap
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ramet.kernels.cpu_support.buffers import lazy_zeros
from ramet.runtime.model.config import ModelConfig
from ramet.runtime.model.storage import KvDtype

_PIECE_BYTES = 2 * 2**20


@dataclass(frozen=True, slots=True, eq=False)
class KvPages:
    """Storage of keys and values, page by page.

    Of bfloat16 (uint16): ``keys`` [pages, layers, kv heads, head_dim / 2, page_size, 2], ``values``
    [pages, layers, kv heads, page_size / 2, head_dim, 2]; a head's keys and values are neighbours.
    Both are words of two numbers that are summed in the same result: two components of a key, one
    component of two tokens' values. A page's keys are transposed, so that 16 tokens' scores are one
    vector. What a token writes and a layer reads lies close together, in few huge pages, and memory
    grows with the pages in use (see ``MemoryAhead``).

    Of int8, with a scale a head and token: bytes [pages, layers, kv heads, (head_dim + 4) *
    page_size], laid out as ``ramet.kernels.linear.cpu_kv`` says.
    """

    keys: npt.NDArray[Any]
    values: npt.NDArray[Any]
    memory: npt.NDArray[np.uint8]
    """All of it, [pages, page_bytes]."""
    page_size: int
    dtype: KvDtype

    @classmethod
    def zeros(
        cls, config: ModelConfig, num_pages: int, page_size: int, dtype: KvDtype = "bf16"
    ) -> KvPages:
        """Pages of zeros; memory is taken from the system when a page is first written."""
        stored = lazy_zeros((num_pages, cls.page_bytes(config, page_size, dtype)), np.uint8)
        head = _head_bytes(config, page_size, dtype)
        shape = config.num_layers, config.num_kv_heads, 2, head
        pages = stored[:, : math.prod(shape)].reshape(num_pages, *shape)
        keys, values = pages[..., 0, :], pages[..., 1, :]
        if dtype == "bf16":
            heads = num_pages, config.num_layers, config.num_kv_heads
            keys = keys.view(np.uint16).reshape(*heads, config.head_dim // 2, page_size, 2)
            values = values.view(np.uint16).reshape(*heads, page_size // 2, config.head_dim, 2)
        return cls(keys, values, stored, page_size, dtype)

    @staticmethod
    def page_bytes(config: ModelConfig, page_size: int, dtype: KvDtype = "bf16") -> int:
        """Bytes from one page to the next. Not a multiple of 8 KiB, or one layer's part of all
        pages would fall into the same few sets of a cache."""
        size = 2 * config.num_layers * config.num_kv_heads * _head_bytes(config, page_size, dtype)
        return size if size % 8192 else size + 4096

    @property
    def num_pages(self) -> int:
        return len(self.keys)

    def page(self, page: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """One page's keys and values of all layers and heads, as views."""
        return self.keys[page], self.values[page]

    def copy_pages(self, copies: npt.NDArray[np.int32]) -> None:
        """Copies whole pages in order: int32[n, 3], source, target and number of tokens."""
        for source, target, _ in copies:
            for stored, copied in zip(self.page(source), self.page(target), strict=True):
                copied[...] = stored

    def read_page(self, page: int) -> bytes:
        """A page's keys and values, as they are stored."""
        keys, values = self.page(page)
        return keys.tobytes() + values.tobytes()

    def write_page(self, page: int, data: bytes) -> None:
        """Restores what ``read_page`` gave; ValueError if the size is another."""
        keys, values = self.page(page)
        if len(data) != keys.nbytes + values.nbytes:
            raise ValueError(f"a page has {keys.nbytes + values.nbytes} bytes, not {len(data)}")
        stored = np.frombuffer(data, keys.dtype)
        keys[...] = stored[: keys.size].reshape(keys.shape)
        values[...] = stored[keys.size :].reshape(values.shape)


def _head_bytes(config: ModelConfig, page_size: int, dtype: KvDtype) -> int:
    """Bytes of a page's keys, or values, of one head and layer."""
    per_token = 2 * config.head_dim if dtype == "bf16" else config.head_dim + 4
    return per_token * page_size


class MemoryAhead:
    """Takes memory from the system for pages that are about to be used.

    A page that was never written has no memory. The system clears some when the page is written,
    and the step waits for that: a decode step of rows that all begin a page takes nearly twice as
    long. Pages are first used in order, so memory for the next ones can be taken between steps.

    Args:
        ahead_bytes: how far beyond the last page that was used.
    """

    def __init__(self, pages: KvPages, *, ahead_bytes: int = 128 * 2**20) -> None:
        self._memory = pages.memory.reshape(-1)
        self._page_bytes = pages.memory[0].nbytes if pages.num_pages else 0
        self._ahead_bytes = ahead_bytes
        self._taken = 0
        self._wanted = min(ahead_bytes, len(self._memory))

    @property
    def taken_bytes(self) -> int:
        """How much has been taken, from the first page on."""
        return self._taken

    def note_used(self, page: int) -> None:
        """A step uses ``page``."""
        end = (page + 1) * self._page_bytes + self._ahead_bytes
        self._wanted = max(self._wanted, min(end, len(self._memory)))

    def take(self) -> bool:
        """Takes the next piece, not while a step runs; False if there is enough."""
        if self._taken < self._wanted:
            end = min(self._taken + _PIECE_BYTES, len(self._memory))
            touched = self._memory[self._taken : end : mmap.PAGESIZE]
            np.bitwise_or(touched, 0, out=touched)  # written, and unchanged
            self._taken = end
        return self._taken < self._wanted

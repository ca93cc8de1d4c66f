"""Pages of keys and values as the CPU kernels read them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ramet.kernels.cpu.buffers import lazy_zeros
from ramet.runtime.model.config import ModelConfig


@dataclass(frozen=True, slots=True, eq=False)
class KvPages:
    """Key and value storage: uint16 (bfloat16 bits), page by page.

    ``keys`` [pages, layers, kv heads, head_dim / 2, page_size, 2], ``values`` [pages, layers,
    kv heads, page_size / 2, head_dim, 2]; a head's keys and values are neighbours. Both are words
    of two numbers that are summed in the same result: two components of a key, one component of
    two tokens' values. A page's keys are transposed, so that 16 tokens' scores are one vector.
    What a token writes and a layer reads lies close together, in few huge pages, and memory grows
    with the pages in use.
    """

    keys: npt.NDArray[np.uint16]
    values: npt.NDArray[np.uint16]

    @classmethod
    def zeros(cls, config: ModelConfig, num_pages: int, page_size: int) -> KvPages:
        """Pages of zeros; memory is taken from the system when a page is first written."""
        shape = config.num_layers, config.num_kv_heads, 2, config.head_dim * page_size
        stored = lazy_zeros((num_pages, cls.page_bytes(config, page_size) // 2), np.uint16)
        pages = stored[:, : math.prod(shape)].reshape(num_pages, *shape)
        keys, values = pages[..., 0, :], pages[..., 1, :]
        return cls(
            keys.reshape(*keys.shape[:3], config.head_dim // 2, page_size, 2),
            values.reshape(*keys.shape[:3], page_size // 2, config.head_dim, 2),
        )

    @staticmethod
    def page_bytes(config: ModelConfig, page_size: int) -> int:
        """Bytes from one page to the next. Not a multiple of 8 KiB, or one layer's part of all
        pages would fall into the same few sets of a cache."""
        size = 4 * config.num_layers * config.num_kv_heads * config.head_dim * page_size
        return size if size % 8192 else size + 4096

    @property
    def page_size(self) -> int:
        return int(self.keys.shape[-2])

    @property
    def num_pages(self) -> int:
        return len(self.keys)

    def page(self, page: int) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint16]]:
        """One page's keys and values of all layers and heads, as views."""
        return self.keys[page], self.values[page]

    def copy_page(self, source: int, target: int) -> None:
        for stored, copied in zip(self.page(source), self.page(target), strict=True):
            copied[...] = stored

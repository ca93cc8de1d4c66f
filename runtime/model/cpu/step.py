"""Builds a CPU program's step records from a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ramet.kernels.cpu.batch import FAULTS, NUM_TOKEN_ROWS, record_step
from ramet.kernels.cpu_support import step as words
from ramet.kernels.cpu_support.buffers import aligned_empty
from ramet.runtime.api.batch import Batch

_BATCH_ARRAYS = (
    "token_ids",
    "positions",
    "row_starts",
    "context_lens",
    "page_tables",
    "page_copies",
    "logit_tokens",
    "hidden_tokens",
)
"""A batch's arrays for compiled code, in the order of ``record_step``'s arguments."""


class StepRecorder:
    """Writes a step's records, over those of the step before.

    Args:
        limits: of what a batch may hold: size of the vocabulary, tokens of a context, tokens of a
            page, pages.
        tiles: how attention is cut: whether pages are grouped, tokens of a tile, heads of keys,
            threads.
        scratch_bytes: of each thread.
        max_fetched: pages that linear layers may fetch.
    """

    def __init__(
        self,
        *,
        limits: tuple[int, int, int, int],
        tiles: tuple[bool, int, int, int],
        scratch_bytes: int,
        max_fetched: int,
    ) -> None:
        self._settings = (*limits, *tiles)
        num_threads = tiles[-1]
        self._scratch = aligned_empty((num_threads, scratch_bytes))
        self._step = np.zeros((words.NUM_RECORDS, words.SIZE), np.int64)
        self._step[:, words.SCRATCH] = self._scratch.ctypes.data
        self._step[:, words.SCRATCH_BYTES] = scratch_bytes
        self._fetched = np.empty(max_fetched, np.int32)
        self._make_room(64)
        self.highest_page = 0
        """Of those that the last step writes."""

    def record(self, batch: Batch, num_greedy: int) -> npt.NDArray[np.int64]:
        """The step's records; they point to arrays of the batch, and are valid until the next call.

        Args:
            num_greedy: logit rows whose likeliest token is looked for, from the first on.

        Raises:
            ValueError: the batch would have compiled code read or write outside of its arrays.
        """
        arrays = self._arrays = tuple(map(_plain, map(batch.__getattribute__, _BATCH_ARRAYS)))
        num_tokens = max(len(arrays[0]), len(arrays[-2]) + len(arrays[-1]))
        if num_tokens > self._tokens.shape[1]:
            self._make_room(num_tokens)
        found = record_step(
            *arrays,
            num_greedy,
            *self._settings,
            self._tokens,
            self._tiles,
            self._fetched,
            self._step,
        )
        if found < 0:
            raise ValueError(FAULTS[-found])
        self.highest_page = found
        return self._step

    def _make_room(self, num_tokens: int) -> None:
        num_tokens = 1 << (num_tokens - 1).bit_length()
        self._tokens = np.empty((NUM_TOKEN_ROWS, num_tokens), np.int32)
        self._tiles = np.empty((2, num_tokens, 2), np.int32)


def _plain(array: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    """An array as compiled code reads it."""
    if array.dtype == np.int32 and array.flags.c_contiguous:
        return array
    return np.ascontiguousarray(array, np.int32)

"""Memory for pages is taken before a step writes them, and nothing of them changes."""

from __future__ import annotations

import ctypes
import mmap
import sys

import numpy as np
import pytest

from ramet.runtime.model.config import ModelConfig
from ramet.runtime.model.cpu.pages import KvPages, MemoryAhead
from ramet.runtime.model.cpu.runner import CpuRunner

PIECE = 2 * 2**20


@pytest.fixture
def pages(model_factory):
    """400 pages of 16 KiB and more: several pieces."""
    model = model_factory(num_layers=4, num_kv_heads=4, head_dim=32)
    return KvPages.zeros(ModelConfig.from_gguf(model), 400, 16)


def take_all(ahead: MemoryAhead) -> None:
    for _ in range(100):
        if not ahead.take():
            return
    raise AssertionError("it never ends")


def test_it_goes_as_far_as_asked_beyond_what_is_used(pages):
    ahead = MemoryAhead(pages, ahead_bytes=3 * 2**20)
    take_all(ahead)
    assert ahead.taken_bytes == 2 * PIECE
    ahead.note_used(200)
    take_all(ahead)
    page_bytes = pages.memory[0].nbytes
    assert 201 * page_bytes + 3 * 2**20 <= ahead.taken_bytes < pages.memory.nbytes
    ahead.note_used(3)
    assert not ahead.take()
    ahead.note_used(399)
    take_all(ahead)
    assert ahead.taken_bytes == pages.memory.nbytes


def test_nothing_that_is_stored_changes(pages):
    stored = np.random.default_rng(0).integers(0, 2**8, pages.memory.shape, np.uint8)
    pages.memory[:] = stored
    take_all(MemoryAhead(pages))
    np.testing.assert_array_equal(pages.memory, stored)


def resident_bytes(address: int, size: int) -> int:
    """How much the system has given of a range that begins on a page (Linux ``mincore``)."""
    pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), pages) == 0
    return mmap.PAGESIZE * sum(page & 1 for page in pages)


@pytest.mark.skipif(sys.platform != "linux", reason="reads the system's account of memory")
def test_the_system_has_given_the_memory(pages):
    address, size = pages.memory.ctypes.data, pages.memory.nbytes
    assert resident_bytes(address, size) == 0
    take_all(MemoryAhead(pages))
    assert resident_bytes(address, size) >= size


def test_the_runner_prepares_until_it_is_closed(model_factory, batch_of):
    runner = CpuRunner(model_factory(), num_pages=64)
    while runner.prepare_ahead():
        pass
    runner.logits(batch_of([([1, 2, 3], 0, [0])]))
    assert not runner.prepare_ahead()
    runner.close()
    assert not runner.prepare_ahead()

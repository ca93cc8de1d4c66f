"""Memory for compiled functions: where arrays lie, and that they don't overlap."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.kernels.cpu_support.buffers import CACHE_LINE, Arena, lazy_zeros


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 700)), min_size=1, max_size=12))
def test_arrays_of_an_arena_are_aligned_and_apart(shapes):
    arena = Arena(slab_bytes=16384)  # some of the arrays are larger than that
    arrays = [arena.empty(shape, np.uint16) for shape in shapes]
    for number, (array, shape) in enumerate(zip(arrays, shapes, strict=True)):
        assert array.shape == shape
        assert array.ctypes.data % CACHE_LINE == 0
        array[...] = number
    for number, array in enumerate(arrays):
        assert (array == number).all()


def test_an_array_outlives_its_arena():
    array = Arena().empty((3, 100), np.float32)
    array[...] = 2.5
    Arena().empty((3, 100))[...] = 1
    assert (array == 2.5).all()


def test_lazy_zeros_are_zeros_that_can_be_written():
    zeros = lazy_zeros((3, 5000), np.uint16)
    assert zeros.shape == (3, 5000)
    assert not zeros.any()
    zeros[1] = 7
    assert zeros.sum() == 7 * 5000
    assert lazy_zeros((0, 4)).size == 0

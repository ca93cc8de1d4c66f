"""What the compiled loops that make automata have in common.

Tables are int32[num_states, num_classes], where a class is a set of bytes that no state
distinguishes; -1 is dead. All loops count their work, so limits are the same on every machine.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types
from numpy.typing import NDArray

Array = NDArray[Any]

OK = 0
TOO_MANY_STATES = 1
TOO_MUCH_WORK = 2

INT = types.int64


def reads(dtype: Any, num_dimensions: int = 1) -> Any:
    """The type of an array that is read and not written to."""
    return types.Array(dtype, num_dimensions, "C", readonly=True)


BOOLS, BYTES, INT16S, INT32S, INT64S = map(
    reads, (types.boolean, types.uint8, types.int16, types.int32, types.int64)
)
TABLE, TABLE_64 = reads(types.int32, 2), reads(types.int64, 2)


# Plain loops: array slices and numpy's sort would take several times as long to compile.


@njit
def grown_1d(array: Array, size: int) -> Array:
    bigger = np.empty(max(size, 2 * array.shape[0]), array.dtype)
    for i in range(array.shape[0]):
        bigger[i] = array[i]
    return bigger


@njit
def grown_2d(array: Array, size: int) -> Array:
    bigger = np.empty((max(size, 2 * array.shape[0]), array.shape[1]), array.dtype)
    for i in range(array.shape[0]):
        for j in range(array.shape[1]):
            bigger[i, j] = array[i, j]
    return bigger


@njit
def sort_prefix(values: Array, length: int) -> None:
    """Sort ``values[:length]`` in place: Shell's sort with Knuth's gaps."""
    gap = 1
    while gap < length // 9:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, length):
            value = values[i]
            j = i - gap
            while j >= 0 and values[j] > value:
                values[j + gap] = values[j]
                j -= gap
            values[j + gap] = value
        gap //= 3

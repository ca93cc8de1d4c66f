"""Arrays by address: one table instead of many array arguments of compiled code.

Passing an array costs as much as walking a dozen nodes of the trie. A table is int64: for each
array its address and its length. The owner of a table keeps the arrays, and rebuilds it when one of
them is replaced.
"""

# ruff: noqa: ARG001  (numba calls intrinsics with a typing context)

from __future__ import annotations

import numpy as np
from numba import carray, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from ramet.jit import jit


@jit(
    "int64[::1](int32[:,::1], int32[:,::1], int32[:,::1], int32[::1], uint64[::1], int32[::1],"
    " int32[::1])",
)
def table_addresses(rows, states, contexts, transitions, words, pushes, plans):  # type: ignore[no-untyped-def]
    """int64[14]: the table of a pushdown table's arrays, in this order."""
    table = np.empty(14, np.int64)
    table[0], table[1] = rows.ctypes.data, rows.shape[0]
    table[2], table[3] = states.ctypes.data, states.shape[0]
    table[4], table[5] = contexts.ctypes.data, contexts.shape[0]
    table[6], table[7] = transitions.ctypes.data, transitions.shape[0]
    table[8], table[9] = words.ctypes.data, words.shape[0]
    table[10], table[11] = pushes.ctypes.data, pushes.shape[0]
    table[12], table[13] = plans.ctypes.data, plans.shape[0]
    return table


@jit(
    "int64[::1](int32[:,::1], int32[:,::1], uint8[::1], int32[::1], int32[:,::1])",
)
def inside_table(trie, roots, prefixes, mask, aliases):  # type: ignore[no-untyped-def]
    """int64[10]: the table of these arrays."""
    table = np.empty(10, np.int64)
    table[0], table[1] = trie.ctypes.data, trie.shape[0]
    table[2], table[3] = roots.ctypes.data, roots.shape[0]
    table[4], table[5] = prefixes.ctypes.data, prefixes.shape[0]
    table[6], table[7] = mask.ctypes.data, mask.shape[0]
    table[8], table[9] = aliases.ctypes.data, aliases.shape[0]
    return table


@intrinsic
def _pointer(typing_context, address):  # type: ignore[no-untyped-def]
    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), generate


@njit(inline="always")
def int32s(table, i):  # type: ignore[no-untyped-def]
    """The i-th array of a table, of one dimension."""
    return carray(_pointer(table[2 * i]), (table[2 * i + 1],), np.int32)


@njit(inline="always")
def uint64s(table, i):  # type: ignore[no-untyped-def]
    """The i-th array of a table, of one dimension and 64-bit words."""
    return carray(_pointer(table[2 * i]), (table[2 * i + 1],), np.uint64)


@njit(inline="always")
def uint8s(table, i):  # type: ignore[no-untyped-def]
    """The i-th array of a table, of one dimension and bytes."""
    return carray(_pointer(table[2 * i]), (table[2 * i + 1],), np.uint8)


@njit(inline="always")
def int32_table(table, i, width):  # type: ignore[no-untyped-def]
    """The i-th array of a table, of ``width`` columns."""
    return carray(_pointer(table[2 * i]), (table[2 * i + 1], width), np.int32)

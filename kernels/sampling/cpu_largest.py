# ruff: noqa: ARG001 (numba calls intrinsics and operations with fixed arguments)
"""Finds the index of a row's largest value: the token of a greedy row."""

from __future__ import annotations

import math

import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from ramet.kernels.cpu_support import ir as vec
from ramet.kernels.cpu_support.compiled_op import op
from ramet.kernels.cpu_support.ir import VF32, Variable, i64
from ramet.kernels.cpu_support.memory import load_f32, load_i64, next_task, store_i32
from ramet.kernels.cpu_support.step import NUM_GREEDY

# Operands.
X, X_STRIDE = 2, 3  # float32 rows, bytes between them
WIDTH = 4  # values of a row
OUT = 5  # int32[rows]

_BLOCK = 2048
_LOWEST = np.float32(-np.inf)


@intrinsic
def _largest(typingctx, x, count):  # type: ignore[no-untyped-def]
    """The largest of ``count`` values at ``x``, a multiple of 64; -inf if all are that or NaN."""

    def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
        x, count = args
        tops = [Variable(b, vec.vf32(-math.inf)) for _ in range(4)]
        with cgutils.for_range(b, b.udiv(count, i64(64))) as loop:
            first = vec.offset(b, x, loop.index, 256)
            for lane, top in enumerate(tops):
                top.set(vec.maximum(b, vec.load(b, first, VF32, 64 * lane), top.get()))
        left, right = (vec.maximum(b, tops[i].get(), tops[i + 1].get()) for i in (0, 2))
        return vec.fold(b, vec.maximum(b, left, right), vec.maximum)

    return types.float32(types.int64, types.int64), codegen


@njit
def first_equal(x, first, end, value):  # type: ignore[no-untyped-def]
    """The first index from ``first`` on at which the float32 at ``x`` are ``value``; or -1."""
    for i in range(first, end):
        if load_f32(x, i) == value:
            return i
    return -1


@njit
def first_largest(x, size):  # type: ignore[no-untyped-def]
    """The first index of the largest of ``size`` float32 at ``x``; -1 if all are -inf or NaN."""
    best, at = _LOWEST, -1
    whole = size // 64 * 64
    for first in range(0, whole, _BLOCK):
        largest = _largest(x + 4 * first, min(whole - first, _BLOCK))
        if largest > best:
            best, at = largest, first
    largest = _LOWEST
    for i in range(whole, size):
        largest = load_f32(x, i) if load_f32(x, i) > largest else largest
    if largest > best:
        best, at = largest, whole
    if at < 0:
        return -1
    return first_equal(x, at, min(at + _BLOCK, size), best)


@op
def largest_of_rows(stage: int, step: int, counter: int, thread: int) -> None:
    """Writes ``first_largest`` of the first NUM_GREEDY rows of X to OUT."""
    num_rows = load_i64(step, NUM_GREEDY)
    while True:
        row = next_task(counter)
        if row >= num_rows:
            break
        x = load_i64(stage, X) + row * load_i64(stage, X_STRIDE)
        store_i32(load_i64(stage, OUT), row, first_largest(x, load_i64(stage, WIDTH)))

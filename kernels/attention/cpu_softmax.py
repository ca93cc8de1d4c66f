# ruff: noqa: ARG001 (numba calls intrinsics with a typing context)
"""Attention's softmax, chunk by chunk: Milakov and Gimelshein's online normaliser (2018).

A row keeps the largest score so far, and what has been summed with weights relative to it. A chunk
may raise the largest score: earlier sums are then multiplied by ``exp(before - after)``, the row's
decay, which is exactly 1 where it stays. The weights' sum is kept in 16 lanes, which are added up
once a row is done.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ramet.kernels.attention.cpu_tiles import CHUNK, MASKED, item_bytes
from ramet.kernels.cpu_support import ir as vec
from ramet.kernels.cpu_support.features import AttentionPath
from ramet.kernels.cpu_support.ir import F32, VF32, VI32, Builder, Value, Variable, i64

LANES = vec.LANES

_STEPS = 16  # of a power of two, in the table of the exponential
_MAGIC = 1.5 * 2**23  # its last bit is worth 1, so what is added to it is made whole
_LEAST = -127 * math.log(2)  # e to this power is 0 here
# 2**(i / 16) as float32 bits, less i where it is when what stands before it is in the exponent.
_POWERS = (2 ** (np.arange(_STEPS) / _STEPS)).astype(np.float32).view(np.int32)
_TABLE = ir.Constant(VI32, [int(bits) - (i << 19) for i, bits in enumerate(_POWERS)])


def _exp_for_bf16(b: Builder, x: Value) -> Value:
    """e**x for x <= 0, with a relative error of 2.4e-4, a tenth of what rounding to bfloat16 adds;
    exactly 1 at 0, and below 2**-126, which bfloat16 products take for 0, exactly 0 or subnormal.
    Needs AVX-512.

    ``x = (16 * n + i) * ln(2) / 16 + f``: 2**(i / 16) comes from a table, n is added to its
    exponent, and e**f is 1 + f.
    """
    x = vec.maximum(b, x, vec.vf32(_LEAST))
    shifted = vec.fma(b, x, vec.vf32(_STEPS / math.log(2)), vec.vf32(_MAGIC))
    steps = b.fsub(shifted, vec.vf32(_MAGIC))
    f = vec.fma(b, steps, vec.vf32(-math.log(2) / _STEPS), x)
    index = b.bitcast(shifted, VI32)
    power = vec.permute(b, _TABLE, index)
    power = b.bitcast(b.add(power, b.shl(index, vec.vi32(19))), VF32)
    return vec.fma(b, power, f, power)


def raise_maxima(num_rows: int) -> Any:
    @intrinsic
    def raise_maxima(typingctx, scores, num_vectors, maxima, decays):  # type: ignore[no-untyped-def]
        """Raises each row's largest score (float32 at ``maxima``) to that of ``num_vectors`` more;
        writes by how much, as a number <= 0, to ``decays``."""

        def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
            scores, num_vectors, maxima, decays = args
            rows = [b.add(scores, i64(r * CHUNK * 4)) for r in range(num_rows)]
            largest = [Variable(b, vec.vf32(MASKED)) for _ in rows]
            with cgutils.for_range(b, num_vectors) as loop:
                for row, best in zip(rows, largest, strict=True):
                    value = vec.load(b, vec.offset(b, row, loop.index, 64), VF32)
                    best.set(vec.maximum(b, value, best.get()))
            for r, best in enumerate(largest):
                before = vec.load(b, maxima, F32, 4 * r)
                after = vec.maximum(b, vec.fold(b, best.get(), vec.maximum), before)
                vec.store(b, after, maxima, 4 * r)
                vec.store(b, b.fsub(before, after), decays, 4 * r)
            return context.get_dummy_value()

        return types.void(*([types.int64] * 4)), codegen

    return raise_maxima


@intrinsic
def exponentials(typingctx, x, count):  # type: ignore[no-untyped-def]
    """e to the power of ``count`` float32 <= 0 in place, and of up to 15 more behind them."""

    def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
        x, count = args
        with cgutils.for_range(b, b.udiv(b.add(count, i64(LANES - 1)), i64(LANES))) as loop:
            at = vec.offset(b, x, loop.index, 64)
            vec.store(b, vec.exp(b, vec.load(b, at, VF32)), at)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


def weights(path: AttentionPath, num_rows: int) -> Any:
    @intrinsic
    def weights(typingctx, scores, num_pairs, maxima, decays, sums):  # type: ignore[no-untyped-def]
        """Scores of ``num_rows`` rows to ``exp(score - maximum)`` in place, as the path has its
        weights, two vectors at a time. The weights as they are kept are added to each row's
        ``sums`` [16 x float32], which decay first."""

        def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
            scores, num_pairs, maxima, decays, sums = args
            rows = [b.add(scores, i64(r * CHUNK * 4)) for r in range(num_rows)]
            shifts = [vec.splat(b, vec.load(b, maxima, F32, 4 * r)) for r in range(num_rows)]
            totals = [Variable(b, vec.vf32(0.0)) for _ in rows]
            with cgutils.for_range(b, num_pairs) as loop:
                for row, shift, total in zip(rows, shifts, totals, strict=True):
                    at = vec.offset(b, row, loop.index, 128)
                    pair = [b.fsub(vec.load(b, at, VF32, 64 * i), shift) for i in range(2)]
                    target = vec.offset(b, row, loop.index, 2 * LANES * item_bytes(path))
                    if path == "bf16":  # half as wide, so it only overwrites what has been read
                        words = vec.pack_bf16(b, *(_exp_for_bf16(b, x) for x in pair))
                        vec.store(b, words, target)
                        total.set(vec.dot_bf16(b, words, vec.BF16_ONES, total.get()))
                        continue
                    for i, x in enumerate(pair):
                        weight = vec.exp(b, x)
                        vec.store(b, weight, target, 64 * i)
                        total.set(b.fadd(total.get(), weight))
            for r, total in enumerate(totals):
                decay = vec.splat(b, vec.load(b, decays, F32, 4 * r))
                before = vec.load(b, sums, VF32, 64 * r)
                vec.store(b, vec.fma(b, before, decay, total.get()), sums, 64 * r)
            return context.get_dummy_value()

        return types.void(*([types.int64] * 5)), codegen

    return weights


@intrinsic
def add_sink(typingctx, sums, largest, sink):  # type: ignore[no-untyped-def]
    """Adds the weight of a score without a value to a row's sum of weights."""

    def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
        sums, largest, sink = args
        score = vec.minimum(b, vec.splat(b, b.fsub(sink, largest)), vec.vf32(80.0))
        weight = b.extract_element(vec.exp(b, score), vec.i32(0))
        vec.store(b, b.fadd(vec.load(b, sums, F32), weight), sums)
        return context.get_dummy_value()

    return types.void(types.int64, types.float32, types.float32), codegen


@intrinsic
def finish_row(typingctx, total, sums, head_dim, out):  # type: ignore[no-untyped-def]
    """Divides a row's sums of values by the sum of its weights."""

    def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
        total, sums, head_dim, out = args
        whole = vec.fold(b, vec.load(b, sums, VF32), vec.fadd)
        factor = vec.splat(b, b.fdiv(vec.f32(1.0), whole))
        with cgutils.for_range(b, b.udiv(head_dim, i64(LANES))) as loop:
            value = vec.load(b, vec.offset(b, total, loop.index, 64), VF32)
            # Plus 0: a chunk that a row sees nothing of, which only others need, turns -0 into 0.
            value = vec.fma(b, value, factor, vec.vf32(0.0))
            vec.store(b, value, vec.offset(b, out, loop.index, 64))
        return context.get_dummy_value()

    return types.void(*([types.int64] * 4)), codegen


@intrinsic
def mask_row(typingctx, scores, first, end, num_vectors):  # type: ignore[no-untyped-def]
    """Hides what a row can't see of ``num_vectors`` vectors: all but [first, end)."""

    def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
        scores, first, end, num_vectors = args
        first, end = (vec.splat(b, b.trunc(bound, vec.I32)) for bound in (first, end))
        lanes = ir.Constant(VI32, list(range(LANES)))
        with cgutils.for_range(b, num_vectors) as loop:
            at = vec.offset(b, scores, loop.index, 64)
            index = b.add(lanes, vec.splat(b, b.trunc(b.mul(loop.index, i64(LANES)), vec.I32)))
            seen = b.and_(b.icmp_signed(">=", index, first), b.icmp_signed("<", index, end))
            vec.store(b, b.select(seen, vec.load(b, at, VF32), vec.vf32(MASKED)), at)
        return context.get_dummy_value()

    return types.void(*([types.int64] * 4)), codegen


@intrinsic
def cap_row(typingctx, scores, num_vectors, cap):  # type: ignore[no-untyped-def]
    """``cap * tanh(score / cap)`` in place, as ``cap - 2 * cap / (exp(2 * score / cap) + 1)``."""

    def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
        scores, num_vectors, cap = args
        caps = vec.splat(b, cap)
        with cgutils.for_range(b, num_vectors) as loop:
            at = vec.offset(b, scores, loop.index, 64)
            value = b.fdiv(b.fmul(vec.load(b, at, VF32), vec.vf32(2.0)), caps)
            value = b.fadd(vec.exp(b, vec.minimum(b, value, vec.vf32(80.0))), vec.vf32(1.0))
            value = b.fsub(caps, b.fdiv(b.fmul(caps, vec.vf32(2.0)), value))
            vec.store(b, value, at)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.float32), codegen

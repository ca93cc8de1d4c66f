# ruff: noqa: ARG001 (numba calls intrinsics with a typing context)
"""The arithmetic of attention: register tiles of scores and weighted sums, softmax, merging.

Rows are queries of one key/value head, float32[head_dim], one after the other. Score rows are
``CHUNK`` float32 apart. Each score and each weighted sum is one chain of fused multiply-adds in a
fixed order, whatever tile it is in.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ramet.kernels.cpu import ir as vec
from ramet.kernels.cpu.ir import F32, I16, I64, VF32, VI32, Variable, i64

CHUNK = 128
MASKED = -1e30


def _scores(num_rows: int) -> Any:
    @intrinsic
    def tile(typingctx, q, keys, next_keys, next_values, pair_stride, head_dim, out):  # type: ignore[no-untyped-def]
        """Scores of ``num_rows`` queries and four vectors of 16 keys.

        ``keys``: address of four addresses; components 2i and 2i + 1 of a vector's keys are 16
        pairs of bfloat16, ``pair_stride * i`` bytes on. ``next_keys``, ``next_values``: addresses
        of four addresses of what is needed a chunk later, which is fetched meanwhile.
        """

        def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
            q, keys, next_keys, next_values, pair_stride, head_dim, out = args
            bases, next_bases, value_bases = (
                [vec.load(b, table, I64, 8 * v) for v in range(4)]
                for table in (keys, next_keys, next_values)
            )
            q_stride = b.mul(head_dim, i64(4))
            rows = [vec.offset(b, q, i64(r), q_stride) for r in range(num_rows)]
            sums = [[Variable(b, vec.vf32(0.0)) for _ in bases] for _ in rows]
            with cgutils.for_range(b, b.udiv(head_dim, i64(4))) as loop:
                for u in range(2):
                    pair = b.add(b.mul(loop.index, i64(2)), i64(u))
                    at = b.mul(pair, pair_stride)
                    for base in next_bases:
                        vec.prefetch(b, b.add(base, at))
                    for base in value_bases:
                        vec.prefetch(b, vec.offset(b, base, pair, 64))
                    words = [vec.load(b, b.add(base, at), VI32) for base in bases]
                    pairs = [vec.bf16_pairs(b, word) for word in words]
                    for component in range(2):
                        for row, accumulators in zip(rows, sums, strict=True):
                            q_at = vec.offset(b, row, pair, 8)
                            scalar = vec.splat(b, vec.load(b, q_at, F32, 4 * component))
                            for accumulator, vectors in zip(accumulators, pairs, strict=True):
                                value = vec.fma(b, scalar, vectors[component], accumulator.get())
                                accumulator.set(value)
            for r, accumulators in enumerate(sums):
                for v, accumulator in enumerate(accumulators):
                    vec.store(b, accumulator.get(), out, r * CHUNK * 4 + 64 * v)
            return context.get_dummy_value()

        return types.void(*([types.int64] * 7)), codegen

    return tile


def _weighted(num_rows: int, width: int) -> Any:
    @intrinsic
    def tile(typingctx, p, values, column, num_vectors, head_dim, out):  # type: ignore[no-untyped-def]
        """``num_rows`` weighted sums of values, 16 * ``width`` components from ``column`` on.

        ``values``: address of ``num_vectors`` addresses, each of 16 values [head_dim].
        """

        def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
            p, values, column, num_vectors, head_dim, out = args
            stride = b.mul(head_dim, i64(2))
            column_bytes = b.mul(column, i64(2))
            sums = [[Variable(b, vec.vf32(0.0)) for _ in range(width)] for _ in range(num_rows)]
            with cgutils.for_range(b, num_vectors) as loop:
                base = vec.load(b, vec.offset(b, values, loop.index, 8), I64)
                base = b.add(base, column_bytes)
                weights = vec.offset(b, p, loop.index, 64)
                with cgutils.for_range(b, i64(4)) as quarter:
                    for u in range(4):
                        t = b.add(b.mul(quarter.index, i64(4)), i64(u))
                        vectors = _load_values(b, vec.offset(b, base, t, stride), width)
                        weight_at = vec.offset(b, weights, t, 4)
                        for r, accumulators in enumerate(sums):
                            weight = vec.splat(b, vec.load(b, weight_at, F32, r * CHUNK * 4))
                            for accumulator, vector in zip(accumulators, vectors, strict=True):
                                accumulator.set(vec.fma(b, weight, vector, accumulator.get()))
            target = vec.offset(b, out, column, 4)
            row_bytes = b.mul(head_dim, i64(4))
            for r, accumulators in enumerate(sums):
                row = vec.offset(b, target, i64(r), row_bytes)
                results = [accumulator.get() for accumulator in accumulators]
                if width > 1:
                    pairs = zip(results[::2], results[1::2], strict=True)
                    results = [part for pair in pairs for part in vec.interleave(b, *pair)]
                for w, result in enumerate(results):
                    vec.store(b, result, row, 64 * w)
            return context.get_dummy_value()

        return types.void(*([types.int64] * 6)), codegen

    return tile


def _load_values(b: Any, at: Any, width: int) -> list[Any]:
    """16 * ``width`` components as float32: one vector in order, or pairs of vectors with the even
    and the odd components of 32."""
    if width == 1:
        return [vec.bf16_to_f32(b, vec.load(b, at, vec.vector(I16)))]
    words = [vec.load(b, at, VI32, 64 * w) for w in range(width // 2)]
    return [vector for word in words for vector in vec.bf16_pairs(b, word)]


scores6, scores3, scores1 = (_scores(rows) for rows in (6, 3, 1))
weighted6, weighted3, weighted1 = (_weighted(rows, 4) for rows in (6, 3, 1))
weighted_narrow = _weighted(1, 1)


def _softmax(num_rows: int) -> Any:
    @intrinsic
    def softmax(typingctx, scores, num_vectors, out):  # type: ignore[no-untyped-def]
        """Scores of ``num_rows`` rows to ``exp(score - maximum)`` in place; each row's maximum and
        sum to ``out``, one after the other. Rows are interleaved to hide latency."""

        def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
            scores, num_vectors, out = args
            rows = [b.add(scores, i64(r * CHUNK * 4)) for r in range(num_rows)]
            largest = [Variable(b, vec.vf32(MASKED)) for _ in rows]
            with cgutils.for_range(b, num_vectors) as loop:
                for row, best in zip(rows, largest, strict=True):
                    value = vec.load(b, vec.offset(b, row, loop.index, 64), VF32)
                    best.set(vec.maximum(b, value, best.get()))
            maxima = [vec.fold(b, best.get(), vec.maximum) for best in largest]
            shifts = [vec.splat(b, maximum) for maximum in maxima]
            totals = [Variable(b, vec.vf32(0.0)) for _ in rows]
            with cgutils.for_range(b, num_vectors) as loop:
                for row, shift, total in zip(rows, shifts, totals, strict=True):
                    at = vec.offset(b, row, loop.index, 64)
                    value = vec.exp(b, b.fsub(vec.load(b, at, VF32), shift))
                    vec.store(b, value, at)
                    total.set(b.fadd(total.get(), value))
            sums = [vec.fold(b, total.get(), vec.fadd) for total in totals]
            for r, (maximum, total) in enumerate(zip(maxima, sums, strict=True)):
                vec.store(b, maximum, out, 8 * r)
                vec.store(b, total, out, 8 * r + 4)
            return context.get_dummy_value()

        return types.void(*([types.int64] * 3)), codegen

    return softmax


softmax3, softmax1 = _softmax(3), _softmax(1)


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


@intrinsic
def merge_row(typingctx, state, total, part, weighted, head_dim):  # type: ignore[no-untyped-def]
    """Merges a chunk into a row: (maximum, sum) ``part`` into ``state``, sums of values alike."""

    def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
        state, total, part, weighted, head_dim = args
        old, new = (vec.load(b, at, F32) for at in (state, part))
        maximum = vec.maximum(b, old, new)
        keep, take = (vec.exp(b, b.fsub(value, maximum)) for value in (old, new))
        taken = b.fmul(vec.load(b, part, F32, 4), take)
        kept = vec.fma(b, vec.load(b, state, F32, 4), keep, taken)
        vec.store(b, maximum, state)
        vec.store(b, kept, state, 4)
        keep, take = vec.splat(b, keep), vec.splat(b, take)
        with cgutils.for_range(b, b.udiv(head_dim, i64(16))) as loop:
            at = vec.offset(b, total, loop.index, 64)
            new = b.fmul(vec.load(b, vec.offset(b, weighted, loop.index, 64), VF32), take)
            vec.store(b, vec.fma(b, vec.load(b, at, VF32), keep, new), at)
        return context.get_dummy_value()

    return types.void(*([types.int64] * 5)), codegen


@intrinsic
def finish_row(typingctx, state, total, head_dim, out):  # type: ignore[no-untyped-def]
    """Divides a row's sums of values by the sum of its weights."""

    def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
        state, total, head_dim, out = args
        factor = vec.splat(b, b.fdiv(vec.f32(1.0), vec.load(b, state, F32, 4)))
        with cgutils.for_range(b, b.udiv(head_dim, i64(16))) as loop:
            value = vec.load(b, vec.offset(b, total, loop.index, 64), VF32)
            vec.store(b, b.fmul(value, factor), vec.offset(b, out, loop.index, 64))
        return context.get_dummy_value()

    return types.void(*([types.int64] * 4)), codegen

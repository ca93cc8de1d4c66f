# ruff: noqa: ARG001 (numba calls intrinsics with a typing context)
"""The products of attention: register tiles of scores and weighted sums.

Rows are queries of one key/value head, one after the other. Score rows are ``CHUNK`` float32 apart.
Keys and values come in words of two bfloat16: of a key's components 2i and 2i + 1, and of one
component of the values of tokens 2i and 2i + 1. They meet queries and weights of softmax in either
of two ways (``AttentionPath``): those are rounded to bfloat16 and one instruction multiplies and
adds both halves of 16 words in float32, or they stay float32 and the halves are taken one by one.
Each score and each weighted sum is one chain in a fixed order, whatever tile it is in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ramet.kernels.cpu_support import ir as vec
from ramet.kernels.cpu_support.features import AttentionPath
from ramet.kernels.cpu_support.ir import F32, I32, I64, VF32, VI32, Builder, Value, Variable, i64

CHUNK = 128
MASKED = -1e30


def item_bytes(path: AttentionPath) -> int:
    """Bytes of a query's component, and of a weight of softmax."""
    return 2 if path == "bf16" else 4


def _add_pairs(
    b: Builder,
    path: AttentionPath,
    words: Sequence[Value],
    rows: Sequence[Value],
    sums: Sequence[Sequence[Variable]],
) -> None:
    """Adds each row's pair of numbers, at the addresses ``rows``, times the pairs in ``words``."""
    if path == "bf16":
        for at, accumulators in zip(rows, sums, strict=True):
            pair = vec.splat(b, vec.load(b, at, I32))
            for accumulator, word in zip(accumulators, words, strict=True):
                accumulator.set(vec.dot_bf16(b, pair, word, accumulator.get()))
        return
    halves = [vec.bf16_pairs(b, word) for word in words]
    for half in range(2):
        for at, accumulators in zip(rows, sums, strict=True):
            scalar = vec.splat(b, vec.load(b, at, F32, 4 * half))
            for accumulator, vectors in zip(accumulators, halves, strict=True):
                accumulator.set(vec.fma(b, scalar, vectors[half], accumulator.get()))


def load_queries(path: AttentionPath) -> Any:
    @intrinsic
    def load_queries(typingctx, q, count, out):  # type: ignore[no-untyped-def]
        """Copies ``count`` float32, a multiple of 16, as the path has its queries."""

        def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
            q, count, out = args
            with cgutils.for_range(b, b.udiv(count, i64(16))) as loop:
                value = vec.load(b, vec.offset(b, q, loop.index, 64), VF32)
                if path == "bf16":
                    value = vec.round_to_bf16(b, value)
                vec.store(b, value, vec.offset(b, out, loop.index, 16 * item_bytes(path)))
            return context.get_dummy_value()

        return types.void(*([types.int64] * 3)), codegen

    return load_queries


@intrinsic
def prefetch_lines(typingctx, address, count, stride):  # type: ignore[no-untyped-def]
    """Asks for ``count`` cache lines, ``stride`` bytes apart."""

    def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
        address, count, stride = args
        with cgutils.for_range(b, count) as loop:
            vec.prefetch(b, b.add(address, b.mul(loop.index, stride)))
        return context.get_dummy_value()

    return types.void(*([types.int64] * 3)), codegen


def scores(path: AttentionPath, num_rows: int) -> Any:
    @intrinsic
    def tile(typingctx, q, keys, next_keys, pair_stride, head_dim, out):  # type: ignore[no-untyped-def]
        """Scores of ``num_rows`` queries and four vectors of 16 keys.

        ``keys``: address of four addresses; components 2i and 2i + 1 of a vector's keys are 16
        words, ``pair_stride * i`` bytes on. ``next_keys``: address of four addresses of the keys
        that are needed a chunk later, which are prefetched.
        """

        def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
            q, keys, next_keys, pair_stride, head_dim, out = args
            bases, next_bases = (
                [vec.load(b, table, I64, 8 * v) for v in range(4)] for table in (keys, next_keys)
            )
            size = item_bytes(path)
            q_stride = b.mul(head_dim, i64(size))
            rows = [vec.offset(b, q, i64(r), q_stride) for r in range(num_rows)]
            sums = [[Variable(b, vec.vf32(0.0)) for _ in bases] for _ in rows]
            with cgutils.for_range(b, b.udiv(head_dim, i64(4))) as loop:
                for u in range(2):
                    pair = b.add(b.mul(loop.index, i64(2)), i64(u))
                    at = b.mul(pair, pair_stride)
                    for base in next_bases:
                        vec.prefetch(b, b.add(base, at))
                    words = [vec.load(b, b.add(base, at), VI32) for base in bases]
                    pairs = [vec.offset(b, row, pair, 2 * size) for row in rows]
                    _add_pairs(b, path, words, pairs, sums)
            for r, accumulators in enumerate(sums):
                for v, accumulator in enumerate(accumulators):
                    vec.store(b, accumulator.get(), out, r * CHUNK * 4 + 64 * v)
            return context.get_dummy_value()

        return types.void(*([types.int64] * 6)), codegen

    return tile


def weighted(path: AttentionPath, num_rows: int, width: int) -> Any:
    @intrinsic
    def tile(typingctx, p, values, next_values, column, num_vectors, head_dim, decays, out):  # type: ignore[no-untyped-def]
        """``num_rows`` weighted sums of values, 16 * ``width`` components from ``column`` on, added
        to what is at ``out`` times each row's decay.

        ``values``: address of ``num_vectors`` addresses, each of 8 pairs of values [head_dim, 2];
        ``next_values``: of as many of what is needed a chunk later, which is prefetched.
        """

        def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
            p, values, next_values, column, num_vectors, head_dim, decays, out = args
            size = item_bytes(path)
            stride = b.mul(head_dim, i64(4))
            column_bytes = b.mul(column, i64(4))
            sums = [[Variable(b, vec.vf32(0.0)) for _ in range(width)] for _ in range(num_rows)]
            with cgutils.for_range(b, num_vectors) as loop:
                base = vec.load(b, vec.offset(b, values, loop.index, 8), I64)
                base = b.add(base, column_bytes)
                next_base = vec.load(b, vec.offset(b, next_values, loop.index, 8), I64)
                next_base = b.add(next_base, column_bytes)
                weights = vec.offset(b, p, loop.index, 16 * size)
                with cgutils.for_range(b, i64(4)) as quarter:
                    for u in range(2):
                        pair = b.add(b.mul(quarter.index, i64(2)), i64(u))
                        following = vec.offset(b, next_base, pair, stride)
                        for w in range(width):
                            vec.prefetch(b, following, 64 * w)
                        at = vec.offset(b, base, pair, stride)
                        words = [vec.load(b, at, VI32, 64 * w) for w in range(width)]
                        at = vec.offset(b, weights, pair, 2 * size)
                        pairs = [b.add(at, i64(r * CHUNK * 4)) for r in range(num_rows)]
                        _add_pairs(b, path, words, pairs, sums)
            target = vec.offset(b, out, column, 4)
            row_bytes = b.mul(head_dim, i64(4))
            for r, accumulators in enumerate(sums):
                row = vec.offset(b, target, i64(r), row_bytes)
                decay = vec.splat(b, vec.load(b, decays, F32, 4 * r))
                for w, accumulator in enumerate(accumulators):
                    before = vec.load(b, row, VF32, 64 * w)
                    vec.store(b, vec.fma(b, before, decay, accumulator.get()), row, 64 * w)
            return context.get_dummy_value()

        return types.void(*([types.int64] * 8)), codegen

    return tile

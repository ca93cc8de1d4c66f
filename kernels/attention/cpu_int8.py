# ruff: noqa: ARG001 (numba calls intrinsics with a typing context)
"""Unpacks int8 keys and values of a chunk to the bfloat16 words that attention's products read.

Pages are laid out as ``ramet.kernels.linear.cpu_kv`` writes them. A chunk is unpacked once for all
rows of a run that share it; of 16 tokens, both keys and values then take ``32 * head_dim`` bytes,
in a thread's scratch.
"""

from __future__ import annotations

from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from ramet.kernels.cpu_support import ir as vec
from ramet.kernels.cpu_support.ir import F32, I8, I16, VF32, VI32, Builder, Value, i64
from ramet.kernels.cpu_support.memory import load_i32, load_i64, store_i64
from ramet.kernels.cpu_support.step import PAGE_TABLE_STRIDE, PAGE_TABLES

# Operands of attention, which are there described.
KEYS, VALUES, PAGE_SIZE, HEAD_BYTES, HEAD_DIM, PAGE_BYTES = 6, 7, 8, 9, 12, 15
INT8 = 17  # 1: keys and values are int8


def _word(b: Builder, low: Value, high: Value) -> Value:
    """16 words of two bfloat16, of 16 float32 each, halves away from zero."""
    low, high = (b.add(b.bitcast(half, VI32), vec.vi32(0x8000)) for half in (low, high))
    return b.or_(b.lshr(low, vec.vi32(16)), b.and_(high, vec.vi32(-0x10000)))


@intrinsic
def _unpack_keys(typingctx, keys, pair_stride, scales, head_dim, out):  # type: ignore[no-untyped-def]
    """Keys of 16 tokens, pairs of components ``pair_stride`` bytes apart, to 16 words a pair."""

    def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
        keys, pair_stride, scales, head_dim, out = args
        scale = vec.load(b, scales, VF32)
        with cgutils.for_range(b, b.udiv(head_dim, i64(2))) as loop:
            pairs = vec.load(b, vec.offset(b, keys, loop.index, pair_stride), vec.vector(I16))
            words = b.sext(pairs, VI32)
            low = b.ashr(b.shl(words, vec.vi32(24)), vec.vi32(24))
            halves = [
                b.fmul(b.sitofp(half, VF32), scale) for half in (low, b.ashr(words, vec.vi32(8)))
            ]
            vec.store(b, _word(b, *halves), vec.offset(b, out, loop.index, 64))
        return context.get_dummy_value()

    return types.void(*([types.int64] * 5)), codegen


@intrinsic
def _unpack_values(typingctx, values, scales, head_dim, out):  # type: ignore[no-untyped-def]
    """Values of 16 tokens, one after the other, to words of two tokens' components."""

    def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
        values, scales, head_dim, out = args
        with cgutils.for_range(b, i64(8)) as pair:
            at = vec.offset(b, values, b.mul(pair.index, i64(2)), head_dim)
            target = vec.offset(b, out, b.mul(pair.index, i64(4)), head_dim)
            factors = vec.offset(b, scales, pair.index, 8)
            tokens = [
                (b.add(at, b.mul(head_dim, i64(t))), vec.splat(b, vec.load(b, factors, F32, 4 * t)))
                for t in range(2)
            ]
            with cgutils.for_range(b, b.udiv(head_dim, i64(16))) as part:
                halves = []
                for token, factor in tokens:
                    quants = vec.load(b, vec.offset(b, token, part.index, 16), vec.vector(I8))
                    halves.append(b.fmul(b.sitofp(b.sext(quants, VI32), VF32), factor))
                vec.store(b, _word(b, *halves), vec.offset(b, target, part.index, 64))
        return context.get_dummy_value()

    return types.void(*([types.int64] * 4)), codegen


@njit
def unpack_chunk(stage, step, row, head, first, count, padded, keys, values, room):  # type: ignore[no-untyped-def]
    """Unpacks a row's ``count`` vectors of 16 tokens from vector ``first`` on into ``room``, and
    fills tables of their addresses up to ``padded``, which repeat the last."""
    head_dim, page_size = load_i64(stage, HEAD_DIM), load_i64(stage, PAGE_SIZE)
    page_vectors, size = page_size // 16, 32 * head_dim
    table = load_i64(step, PAGE_TABLES) + 4 * row * load_i64(step, PAGE_TABLE_STRIDE)
    head_at = head * load_i64(stage, HEAD_BYTES)
    for v in range(count):
        page = load_i32(table, (first + v) // page_vectors) * load_i64(stage, PAGE_BYTES) + head_at
        inner = (first + v) % page_vectors
        scales = page + head_dim * page_size + 64 * inner
        at = load_i64(stage, KEYS)
        _unpack_keys(at + page + 32 * inner, 2 * page_size, at + scales, head_dim, room + v * size)
        at = load_i64(stage, VALUES)
        _unpack_values(at + page + 16 * head_dim * inner, at + scales, head_dim,
                       room + (padded + v) * size)  # fmt: skip
    for v in range(padded):
        index = min(v, count - 1)
        store_i64(keys, v, room + index * size)
        store_i64(values, v, room + (padded + index) * size)

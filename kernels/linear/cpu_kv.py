# ruff: noqa: ARG001 (numba calls intrinsics with a typing context)
"""Writes heads of keys and values to their pages, as bfloat16 or as int8.

In a head's page, bfloat16 keys are [head_dim / 2, page_size, 2] and values [page_size / 2,
head_dim, 2]. Int8 keys are [head_dim / 2, page_size, 2] and values [page_size, head_dim], each
followed by a float32 scale a token: ``scale * q`` stands for a value, |q| <= 127. A scale for all
tokens of a page would make an early token's bits depend on later ones.
"""

from __future__ import annotations

from typing import Any

from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from ramet.kernels.cpu_support import ir as vec
from ramet.kernels.cpu_support.ir import I8, VF32, VI32, Variable, i64
from ramet.kernels.cpu_support.memory import load_i32, load_i64
from ramet.kernels.cpu_support.step import SLOTS

# Operands.
HEAD_DIM = 15
PAGES, PAGE_SIZE = 24, 25  # one layer's keys or values
HEAD_BYTES, PAGE_BYTES = 26, 27  # from one head, or page, to the next
KV_INT8 = 37  # 1: int8, 0: bfloat16


@intrinsic
def _store_bf16_key(typingctx, x, count, target, pair_stride):  # type: ignore[no-untyped-def]
    """Stores ``count`` (a multiple of 16) float32 as words of two bfloat16, ``pair_stride``
    apart."""

    def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
        x, count, target, pair_stride = args
        with cgutils.for_range(b, b.udiv(count, i64(16))) as loop:
            bits = vec.f32_to_bf16(b, vec.load(b, vec.offset(b, x, loop.index, 64), VF32))
            at = vec.offset(b, target, b.mul(loop.index, i64(8)), pair_stride)
            words = b.bitcast(bits, vec.vector(vec.I32, 8))
            for pair in range(8):
                word = b.extract_element(words, vec.i32(pair))
                vec.store(b, word, vec.offset(b, at, i64(pair), pair_stride))
        return context.get_dummy_value()

    return types.void(*([types.int64] * 4)), codegen


@intrinsic
def _store_bf16_value(typingctx, x, count, target):  # type: ignore[no-untyped-def]
    """Stores ``count`` (a multiple of 16) float32 as bfloat16 in halves of words, the first at
    ``target``. The other halves are another token's, which another thread may be storing: they are
    neither read nor written."""

    def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
        x, count, target = args
        with cgutils.for_range(b, b.udiv(count, i64(16))) as loop:
            at = vec.offset(b, x, loop.index, 64)
            bits = vec.f32_to_bf16(b, vec.load(b, at, VF32))
            at = vec.offset(b, target, loop.index, 64)
            for lane in range(16):
                vec.store(b, b.extract_element(bits, vec.i32(lane)), at, 4 * lane)
        return context.get_dummy_value()

    return types.void(*([types.int64] * 3)), codegen


def _store_int8(*, pairs: bool) -> Any:
    @intrinsic
    def store(typingctx, x, count, target, stride, scale_at):  # type: ignore[no-untyped-def]
        """Stores ``count`` (a multiple of 16) float32 as int8, and their scale. ``pairs``: two
        numbers every ``stride`` bytes; otherwise one after the other."""

        def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
            x, count, target, stride, scale_at = args
            num_vectors = b.udiv(count, i64(16))
            largest = Variable(b, vec.vf32(1e-20))
            with cgutils.for_range(b, num_vectors) as loop:
                value = vec.load(b, vec.offset(b, x, loop.index, 64), VF32)
                largest.set(vec.maximum(b, vec.absolute(b, value), largest.get()))
            amax = vec.fold(b, largest.get(), vec.maximum)
            vec.store(b, b.fmul(amax, vec.f32(1 / 127)), scale_at)
            inverse = vec.splat(b, b.fdiv(vec.f32(127.0), amax))
            with cgutils.for_range(b, num_vectors) as loop:
                value = vec.load(b, vec.offset(b, x, loop.index, 64), VF32)
                q = b.fptosi(vec.round_nearest(b, b.fmul(value, inverse)), VI32)
                quants = b.trunc(q, vec.vector(I8))
                if pairs:
                    at = vec.offset(b, target, b.mul(loop.index, i64(8)), stride)
                    words = b.bitcast(quants, vec.vector(vec.I16, 8))
                    for pair in range(8):
                        word = b.extract_element(words, vec.i32(pair))
                        vec.store(b, word, vec.offset(b, at, i64(pair), stride))
                else:
                    vec.store(b, quants, vec.offset(b, target, loop.index, 16))
            return context.get_dummy_value()

        return types.void(*([types.int64] * 5)), codegen

    return store


_store_int8_key, _store_int8_value = _store_int8(pairs=True), _store_int8(pairs=False)


@njit
def store_head(stage, step, x, row, head, is_key):  # type: ignore[no-untyped-def]
    """Stores one row's head of keys or values, float32 at ``x``, in its page."""
    head_dim, page_size = load_i64(stage, HEAD_DIM), load_i64(stage, PAGE_SIZE)
    slot = load_i32(load_i64(step, SLOTS), row)
    page = load_i64(stage, PAGES) + head * load_i64(stage, HEAD_BYTES)
    page += slot // page_size * load_i64(stage, PAGE_BYTES)
    place = slot % page_size
    if load_i64(stage, KV_INT8) != 0:
        scale_at = page + head_dim * page_size + 4 * place
        if is_key:
            _store_int8_key(x, head_dim, page + place * 2, page_size * 2, scale_at)
        else:
            _store_int8_value(x, head_dim, page + place * head_dim, 0, scale_at)
    elif is_key:
        _store_bf16_key(x, head_dim, page + place * 4, page_size * 4)
    else:
        _store_bf16_value(x, head_dim, page + place // 2 * head_dim * 4 + place % 2 * 2)

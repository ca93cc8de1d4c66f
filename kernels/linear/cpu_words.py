# ruff: noqa: ARG001 (numba calls intrinsics with a typing context)
"""Compiled parts of ``cpu_weights.pack``: stored values to the words of blocks, in one pass."""

from __future__ import annotations

from numba import types
from numba.extending import intrinsic

from ramet.jit import jit
from ramet.kernels.cpu_support import ir as vec
from ramet.kernels.cpu_support.memory import load_f16, load_i8, load_i32, store_i32

_LOW = 0x0F0F0F0F
_LOW_PAIRS = 0x03030303
_SIGNATURE = "void(int64, int64, int64, int64, int64, int64, int64)"


@intrinsic
def _store_f16(typingctx, address, value):  # type: ignore[no-untyped-def]
    """Stores a float32 as float16; gives what that is as float32."""

    def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
        rounded = b.fptrunc(args[1], vec.F16)
        vec.store(b, rounded, args[0])
        return b.fpext(rounded, vec.F32)

    return types.float32(types.int64, types.float32), codegen


@intrinsic
def _store_bf16(typingctx, address, value):  # type: ignore[no-untyped-def]
    def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
        vec.store(b, vec.f32_to_bf16(b, args[1]), args[0])
        return context.get_dummy_value()

    return types.void(types.int64, types.float32), codegen


@jit("void(int64, int64, int64, int64, int64, int64, int64, int64)")
def q4_k_sides(stored, row_bytes, num_rows, num_supers, data, block_bytes, stride, middles):  # type: ignore[no-untyped-def]
    """Q4_K's scales, and its minimums or, with ``middles``, the values of 8; see ``q4_k_words``.

    Two float16 of a block times its eight pairs of 6 bits, packed in 12 bytes.
    """
    for row in range(num_rows):
        target = data + row // 16 * block_bytes + row % 16 * 2 + 256
        for group in range(8 * num_supers):
            at = stored + row * row_bytes + group // 8 * 144
            i = group % 8
            if i < 4:
                factor, least = load_i8(at, 4 + i) & 63, load_i8(at, 8 + i) & 63
            else:
                upper = load_i8(at, 8 + i)
                factor = (upper & 15) | (load_i8(at, i) >> 6 & 3) << 4
                least = (upper >> 4 & 15) | (load_i8(at, 4 + i) >> 6 & 3) << 4
            side = target + group * stride
            scale = _store_f16(side, load_f16(at, 0) * types.float32(factor))
            least_value = _store_f16(side + 32, -load_f16(at, 1) * types.float32(least))
            if middles != 0:
                _store_bf16(side + 32, least_value + types.float32(8) * scale)


@jit("void(int64, int64, int64, int64, int64, int64, int64, int64)")
def q6_k_sides(stored, row_bytes, num_rows, num_supers, data, block_bytes, stride, middles):  # type: ignore[no-untyped-def]
    """Q6_K's two scales a group; see ``q4_k_words``."""
    for row in range(num_rows):
        target = data + row // 16 * block_bytes + row % 16 * 2 + 512
        for group in range(8 * num_supers):
            at = stored + row * row_bytes + group // 8 * 210
            for half in range(2):
                factor = types.float32(load_i8(at, 192 + group % 8 * 2 + half))
                side = target + group * stride + 32 * half
                _store_f16(side, load_f16(at + 208, 0) * factor)


@jit(_SIGNATURE)
def q4_k_words(stored, row_bytes, num_rows, num_supers, data, block_bytes, stride):  # type: ignore[no-untyped-def]
    """Q4_K's values, two groups in 32 bytes, as 4-bit words.

    Args:
        stored: address of the rows, ``row_bytes`` apart, of ``num_supers`` blocks of 256 values.
        data: address of the blocks that the rows go to, ``block_bytes`` apart; of one group and
            the next, ``stride``.
    """
    for row in range(num_rows):
        target = data + row // 16 * block_bytes + row % 16 * 4
        for part in range(4 * num_supers):
            at = stored + row * row_bytes + part // 4 * 144 + 16 + part % 4 * 32
            low = target + 2 * part * stride
            for t in range(4):
                a, b = load_i32(at, t), load_i32(at, 4 + t)
                store_i32(low, 16 * t, (a & _LOW) | (b & _LOW) << 4)
                store_i32(low + stride, 16 * t, (a >> 4 & _LOW) | (b >> 4 & _LOW) << 4)


@jit(_SIGNATURE)
def q6_k_words(stored, row_bytes, num_rows, num_supers, data, block_bytes, stride):  # type: ignore[no-untyped-def]
    """Q6_K's values as 8-bit words; arguments as of ``q4_k_words``."""
    for row in range(num_rows):
        target = data + row // 16 * block_bytes + row % 16 * 4
        for half in range(2 * num_supers):
            at = stored + row * row_bytes + half // 2 * 210
            low, high = at + half % 2 * 64, at + 128 + half % 2 * 32
            group = target + 4 * half * stride
            for t in range(8):
                a, b, upper = load_i32(low, t), load_i32(low, 8 + t), load_i32(high, t)
                store_i32(group, 16 * t, (a & _LOW) | (upper & _LOW_PAIRS) << 4)
                store_i32(group + stride, 16 * t, (b & _LOW) | (upper >> 2 & _LOW_PAIRS) << 4)
                store_i32(
                    group + 2 * stride, 16 * t, (a >> 4 & _LOW) | (upper >> 4 & _LOW_PAIRS) << 4
                )
                store_i32(
                    group + 3 * stride, 16 * t, (b >> 4 & _LOW) | (upper >> 6 & _LOW_PAIRS) << 4
                )


@jit(_SIGNATURE)
def q8_0_words(stored, row_bytes, num_rows, num_groups, data, block_bytes, stride):  # type: ignore[no-untyped-def]
    """Q8_0's values as 8-bit words; arguments as of ``q4_k_words``, of blocks of 32 values."""
    for row in range(num_rows):
        target = data + row // 16 * block_bytes + row % 16 * 4
        for group in range(num_groups):
            at = stored + row * row_bytes + group * 34 + 2
            for t in range(8):
                store_i32(target + group * stride, 16 * t, load_i32(at, t) ^ 0x80808080)

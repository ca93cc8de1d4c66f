# ruff: noqa: ARG001 (numba calls intrinsics and operations with fixed arguments)
"""Operations on rows of activations: embedding, normalisation, rotation, gates, quantisation.

Each takes rows from a shared counter. Where a linear layer with int8 activations follows, the row
is quantised as soon as it is done: 32 values share a scale, ``scale * q`` stands for a value, and
the sums of a group's q (int32) and of its values (float32) are kept beside it, because weight
formats with minimums or zero points need them.
"""

from __future__ import annotations

from typing import Any

from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from ramet.kernels.cpu import ir as vec
from ramet.kernels.cpu.compiled import op
from ramet.kernels.cpu.ir import F32, I8, VF32, VI32, Builder, Value, Variable, i64
from ramet.kernels.cpu.memory import (
    load_f16,
    load_f32,
    load_i8,
    load_i32,
    load_i64,
    next_task,
    store_bf16,
    store_f32,
)
from ramet.kernels.cpu.step import NUM_THREADS, NUM_TOKENS, POSITIONS, SLOTS, TOKEN_IDS

# Operands that the operations share.
X, X_STRIDE = 2, 3  # float32 input rows, bytes between them
WIDTH = 4  # values of an output row
OUT, OUT_STRIDE = 5, 6  # float32 output rows
QUANTS, QUANT_STRIDE = 7, 8  # int8 output rows, or 0: not quantised
SCALES, SCALED_SUMS, SUMS, SCALE_STRIDE = 9, 10, 11, 12
ROWS = 13  # the word of the step's record that holds the number of rows
INDEX = 14  # the word that holds the address of int32 input row numbers, or 0: row m is row m
WEIGHT, EPSILON = 15, 16  # norm; epsilon as float64 bits
GATE_KIND = 15
SILU, GELU_TANH = 0, 1


@intrinsic
def _quantise_row(typingctx, x, num_groups, quants, scales, scaled_sums, sums):  # type: ignore[no-untyped-def]
    def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
        x, num_groups, quants, scales, scaled_sums, sums = args
        with cgutils.for_range(b, num_groups) as loop:
            g = loop.index
            at = vec.offset(b, x, g, 128)
            parts = [vec.load(b, at, VF32, 64 * i) for i in range(2)]
            largest = vec.maximum(b, *(vec.absolute(b, part) for part in parts))
            amax = vec.fold(b, largest, vec.maximum)
            amax = vec.maximum(b, amax, vec.f32(1e-20))
            scale = b.fmul(amax, vec.f32(1 / 127))
            inverse = vec.splat(b, b.fdiv(vec.f32(127.0), amax))
            target = vec.offset(b, quants, g, 32)
            total = None
            for i, part in enumerate(parts):
                q = b.fptosi(vec.round_nearest(b, b.fmul(part, inverse)), VI32)
                vec.store(b, b.trunc(q, vec.vector(I8)), target, 16 * i)
                total = q if total is None else b.add(total, q)
            total = vec.fold(b, total, vec.add)
            vec.store(b, scale, vec.offset(b, scales, g, 4))
            vec.store(b, total, vec.offset(b, sums, g, 4))
            scaled = b.fmul(scale, b.sitofp(total, F32))
            vec.store(b, scaled, vec.offset(b, scaled_sums, g, 4))
        return context.get_dummy_value()

    return types.void(*([types.int64] * 6)), codegen


@intrinsic
def _rms_norm_row(typingctx, x, weight, epsilon, out, width):  # type: ignore[no-untyped-def]
    """``out = x / sqrt(mean(x**2) + epsilon) * weight``; ``width`` a multiple of 16."""

    def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
        x, weight, epsilon, out, width = args
        count = b.udiv(width, i64(16))
        squares = Variable(b, vec.vf32(0.0))
        with cgutils.for_range(b, count) as loop:
            value = vec.load(b, vec.offset(b, x, loop.index, 64), VF32)
            squares.set(vec.fma(b, value, value, squares.get()))
        mean = b.fdiv(vec.fold(b, squares.get(), vec.fadd), b.uitofp(width, F32))
        root = vec.square_root(b, b.fadd(mean, epsilon))
        factor = vec.splat(b, b.fdiv(vec.f32(1.0), root))
        with cgutils.for_range(b, count) as loop:
            value = vec.load(b, vec.offset(b, x, loop.index, 64), VF32)
            scale = vec.load(b, vec.offset(b, weight, loop.index, 64), VF32)
            value = b.fmul(b.fmul(value, factor), scale)
            vec.store(b, value, vec.offset(b, out, loop.index, 64))
        return context.get_dummy_value()

    kinds = (types.int64, types.int64, types.float32, types.int64, types.int64)
    return types.void(*kinds), codegen


def _silu(b: Builder, x: Value) -> Value:
    one = vec.vf32(1.0)
    return b.fdiv(x, b.fadd(vec.exp(b, b.fneg(x)), one))


def _gelu_tanh(b: Builder, x: Value) -> Value:
    """``x * sigmoid(2 * sqrt(2 / pi) * (x + 0.044715 x**3))``, which is the tanh form."""
    cube = b.fmul(b.fmul(x, x), x)
    inner = vec.fma(b, cube, vec.vf32(0.044715), x)
    inner = b.fmul(inner, vec.vf32(-1.5957691216057308))
    return b.fdiv(x, b.fadd(vec.exp(b, inner), vec.vf32(1.0)))


def _gated(gate: Any) -> Any:
    @intrinsic
    def gated_row(typingctx, x, up, out, width):  # type: ignore[no-untyped-def]
        """``out = gate(x) * up``; ``width`` a multiple of 16."""

        def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
            x, up, out, width = args
            with cgutils.for_range(b, b.udiv(width, i64(16))) as loop:
                value = vec.load(b, vec.offset(b, x, loop.index, 64), VF32)
                other = vec.load(b, vec.offset(b, up, loop.index, 64), VF32)
                value = b.fmul(gate(b, value), other)
                vec.store(b, value, vec.offset(b, out, loop.index, 64))
            return context.get_dummy_value()

        return types.void(*([types.int64] * 4)), codegen

    return gated_row


_silu_row, _gelu_tanh_row = _gated(_silu), _gated(_gelu_tanh)


@intrinsic
def bits_to_f32(typingctx, bits):  # type: ignore[no-untyped-def]
    """float64 bits, as an operand carries them, to float32."""

    def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
        return b.fptrunc(b.bitcast(args[0], vec.F64), F32)

    return types.float32(types.int64), codegen


@njit(inline="always")
def _rows_per_task(num_rows, num_threads):  # type: ignore[no-untyped-def]
    return max(1, num_rows // (4 * num_threads))


@njit(inline="always")
def _quantise(stage, m, row):  # type: ignore[no-untyped-def]
    quants = load_i64(stage, QUANTS)
    if quants != 0:
        side = m * load_i64(stage, SCALE_STRIDE)
        _quantise_row(
            row,
            load_i64(stage, WIDTH) // 32,
            quants + m * load_i64(stage, QUANT_STRIDE),
            load_i64(stage, SCALES) + side,
            load_i64(stage, SCALED_SUMS) + side,
            load_i64(stage, SUMS) + side,
        )


@op
def quantise_rows(stage: int, step: int, counter: int, thread: int) -> None:
    """Quantises rows of X."""
    num_rows = load_i64(step, load_i64(stage, ROWS))
    size = _rows_per_task(num_rows, load_i64(step, NUM_THREADS))
    while True:
        first = next_task(counter) * size
        if first >= num_rows:
            break
        for m in range(first, min(first + size, num_rows)):
            _quantise(stage, m, load_i64(stage, X) + m * load_i64(stage, X_STRIDE))


@op
def norm_rows(stage: int, step: int, counter: int, thread: int) -> None:
    """RMSNorm of rows of X to OUT, then quantised."""
    num_rows = load_i64(step, load_i64(stage, ROWS))
    size = _rows_per_task(num_rows, load_i64(step, NUM_THREADS))
    index_word = load_i64(stage, INDEX)
    epsilon = bits_to_f32(load_i64(stage, EPSILON))
    while True:
        first = next_task(counter) * size
        if first >= num_rows:
            break
        for m in range(first, min(first + size, num_rows)):
            source = m
            if index_word != 0:
                source = load_i32(load_i64(step, index_word), m)
            out = load_i64(stage, OUT) + m * load_i64(stage, OUT_STRIDE)
            x = load_i64(stage, X) + source * load_i64(stage, X_STRIDE)
            _rms_norm_row(x, load_i64(stage, WEIGHT), epsilon, out, load_i64(stage, WIDTH))
            _quantise(stage, m, out)


@op
def gate_rows(stage: int, step: int, counter: int, thread: int) -> None:
    """``OUT = gate(X[:, :width]) * X[:, width:]``, then quantised; ``X`` holds gate, then up."""
    num_rows = load_i64(step, load_i64(stage, ROWS))
    size = _rows_per_task(num_rows, load_i64(step, NUM_THREADS))
    width = load_i64(stage, WIDTH)
    while True:
        first = next_task(counter) * size
        if first >= num_rows:
            break
        for m in range(first, min(first + size, num_rows)):
            x = load_i64(stage, X) + m * load_i64(stage, X_STRIDE)
            out = load_i64(stage, OUT) + m * load_i64(stage, OUT_STRIDE)
            if load_i64(stage, GATE_KIND) == SILU:
                _silu_row(x, x + 4 * width, out, width)
            else:
                _gelu_tanh_row(x, x + 4 * width, out, width)
            _quantise(stage, m, out)


# Operands of ``embed_rows``.
TABLE, TABLE_BLOCK_BYTES, TABLE_BITS, TABLE_ZERO_POINT, TABLE_HAS_MINIMUM = 15, 16, 17, 18, 19
TABLE_GROUP_STRIDE = 20
EMBED_SCALE = 21  # float64 bits


@op
def embed_rows(stage: int, step: int, counter: int, thread: int) -> None:
    """Dequantises the embedding of each token to OUT."""
    num_rows = load_i64(step, NUM_TOKENS)
    size = _rows_per_task(num_rows, load_i64(step, NUM_THREADS))
    bits = load_i64(stage, TABLE_BITS)
    zero_point = load_i64(stage, TABLE_ZERO_POINT)
    has_minimum = load_i64(stage, TABLE_HAS_MINIMUM)
    scale = bits_to_f32(load_i64(stage, EMBED_SCALE))
    groups = load_i64(stage, WIDTH) // 32
    group_bytes = 64 * bits
    group_stride = load_i64(stage, TABLE_GROUP_STRIDE)
    while True:
        first = next_task(counter) * size
        if first >= num_rows:
            break
        for m in range(first, min(first + size, num_rows)):
            token = load_i32(load_i64(step, TOKEN_IDS), m)
            block = load_i64(stage, TABLE) + token // 16 * load_i64(stage, TABLE_BLOCK_BYTES)
            lane = token % 16
            out = load_i64(stage, OUT) + m * load_i64(stage, OUT_STRIDE)
            for g in range(groups):
                words = block + g * group_stride
                if bits == 32:
                    for k in range(32):
                        store_f32(out, g * 32 + k, load_f32(words, k * 16 + lane) * scale)
                else:
                    d = load_f16(words + group_bytes, lane)
                    low = d * 0
                    if has_minimum != 0:
                        low = load_f16(words + group_bytes + 32, lane)
                    for k in range(32):
                        if bits == 8:
                            q = load_i8(words, (k // 4 * 16 + lane) * 4 + k % 4) & 255
                        else:
                            byte = load_i8(words, (k % 16 // 4 * 16 + lane) * 4 + k % 4) & 255
                            q = byte >> (k // 16 * 4) & 15
                        value = types.float32(q - zero_point) * d + low
                        store_f32(out, g * 32 + k, value * scale)


# Operands of ``rotate_rows``.
NUM_HEADS, NUM_KV_HEADS, HEAD_DIM, ROPE_DIM = 4, 5, 6, 7
COSINES, SINES = 8, 9  # float32[positions, rope_dim / 2]
QUERY_SCALE = 10  # float64 bits: multiplies the rotated queries
QUERY_NORM, KEY_NORM, HEAD_EPSILON = 11, 12, 13  # float32[head_dim], or 0
KEYS, VALUES, PAGE_SIZE, PAGE_BYTES = 14, 15, 16, 17  # one layer's pages


@njit(inline="always")
def _rotate(x, cosines, sines, rope_dim):  # type: ignore[no-untyped-def]
    half = rope_dim // 2
    for i in range(half):
        a, b = load_f32(x, i), load_f32(x, half + i)
        c, s = load_f32(cosines, i), load_f32(sines, i)
        store_f32(x, i, a * c - b * s)
        store_f32(x, half + i, b * c + a * s)


@op
def rotate_rows(stage: int, step: int, counter: int, thread: int) -> None:
    """Normalises (if asked) and rotates queries and keys in place, scales the queries, and writes
    keys and values to their pages.

    A row of X holds the queries, keys and values of all heads. A page of one layer holds keys as
    bfloat16[kv heads, head_dim, page_size] and values as bfloat16[kv heads, page_size, head_dim].
    """
    num_rows = load_i64(step, NUM_TOKENS)
    size = _rows_per_task(num_rows, load_i64(step, NUM_THREADS))
    num_heads = load_i64(stage, NUM_HEADS)
    num_kv_heads = load_i64(stage, NUM_KV_HEADS)
    head_dim = load_i64(stage, HEAD_DIM)
    rope_dim = load_i64(stage, ROPE_DIM)
    page_size = load_i64(stage, PAGE_SIZE)
    page_bytes = load_i64(stage, PAGE_BYTES)
    scale = bits_to_f32(load_i64(stage, QUERY_SCALE))
    epsilon = bits_to_f32(load_i64(stage, HEAD_EPSILON))
    while True:
        first = next_task(counter) * size
        if first >= num_rows:
            break
        for m in range(first, min(first + size, num_rows)):
            position = load_i32(load_i64(step, POSITIONS), m)
            cosines = load_i64(stage, COSINES) + position * rope_dim * 2
            sines = load_i64(stage, SINES) + position * rope_dim * 2
            row = load_i64(stage, X) + m * load_i64(stage, X_STRIDE)
            for head in range(num_heads + num_kv_heads):
                x = row + head * head_dim * 4
                norm = load_i64(stage, QUERY_NORM if head < num_heads else KEY_NORM)
                if norm != 0:
                    _rms_norm_row(x, norm, epsilon, x, head_dim)
                _rotate(x, cosines, sines, rope_dim)
                if head < num_heads:
                    for d in range(head_dim):
                        store_f32(x, d, load_f32(x, d) * scale)
            slot = load_i32(load_i64(step, SLOTS), m)
            page, place = slot // page_size, slot % page_size
            keys = load_i64(stage, KEYS) + page * page_bytes
            values = load_i64(stage, VALUES) + page * page_bytes
            row += num_heads * head_dim * 4
            for head in range(num_kv_heads):
                for d in range(head_dim):
                    value = load_f32(row, head * head_dim + d)
                    store_bf16(keys, (head * head_dim + d) * page_size + place, value)
            row += num_kv_heads * head_dim * 4
            for head in range(num_kv_heads):
                for d in range(head_dim):
                    value = load_f32(row, head * head_dim + d)
                    store_bf16(values, (head * page_size + place) * head_dim + d, value)

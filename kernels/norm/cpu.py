# ruff: noqa: ARG001 (numba calls intrinsics and operations with fixed arguments)
"""Operations on whole rows of activations: embedding, normalisation, quantisation.

Each takes rows from a shared counter.
"""

from __future__ import annotations

from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from ramet.kernels.cpu_support import ir as vec
from ramet.kernels.cpu_support.compiled_op import op
from ramet.kernels.cpu_support.ir import F32, VF32, Variable, i64
from ramet.kernels.cpu_support.memory import (
    bits_to_f32,
    load_bf16,
    load_f16,
    load_f32,
    load_i8,
    load_i32,
    load_i64,
    next_task,
    store_f32,
)
from ramet.kernels.cpu_support.quantise import store_quantised
from ramet.kernels.cpu_support.step import (
    NUM_THREADS,
    NUM_TOKENS,
    SCRATCH,
    SCRATCH_BYTES,
    TOKEN_IDS,
)

# Operands; rows are also quantised if the operands of ``quantise`` ask for it.
X, X_STRIDE = 2, 3  # float32 input rows, bytes between them
WIDTH = 4  # values of a row
OUT, OUT_STRIDE = 5, 6  # float32 output rows; of a norm, or 0: only quantised ones are wanted
ROWS = 7  # the word of the step's record that holds the number of rows
INDEX = 8  # the word that holds the address of int32 input row numbers, or 0: row m is row m
WEIGHT, EPSILON = 9, 10  # of a norm, or 0: rows are copied; epsilon as float64 bits
CENTRED, NORM_BIAS = 18, 19  # 1: LayerNorm; float32 values that are added, or 0
KEPT, KEPT_STRIDE = 16, 17  # of a norm: float32 rows, copies of its input; or 0
TABLE, TABLE_BLOCK_BYTES, TABLE_GROUP_STRIDE, TABLE_BITS = 9, 10, 11, 12  # of an embedding
TABLE_ZERO_POINT, TABLE_LEAST = 13, 14
NO_LEAST, MINIMUM, MIDDLE, SECOND_SCALE = 0, 1, 2, 3  # what a group has in addition to its scale
BF16 = 4  # of 16 bits: they are bfloat16, not float16
EMBED_SCALE = 15  # float64 bits


@intrinsic
def rms_norm_row(typingctx, x, weight, epsilon, out, width):  # type: ignore[no-untyped-def]
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


@intrinsic
def _centre_row(typingctx, x, width, out):  # type: ignore[no-untyped-def]
    """``out = x - mean(x)``; ``width`` a multiple of 16."""

    def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
        x, width, out = args
        count = b.udiv(width, i64(16))
        total = Variable(b, vec.vf32(0.0))
        with cgutils.for_range(b, count) as loop:
            value = vec.load(b, vec.offset(b, x, loop.index, 64), VF32)
            total.set(b.fadd(total.get(), value))
        mean = b.fdiv(vec.fold(b, total.get(), vec.fadd), b.uitofp(width, F32))
        mean = vec.splat(b, mean)
        with cgutils.for_range(b, count) as loop:
            value = vec.load(b, vec.offset(b, x, loop.index, 64), VF32)
            vec.store(b, b.fsub(value, mean), vec.offset(b, out, loop.index, 64))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@njit
def normalise_row(x, weight, epsilon, out, width, centred):  # type: ignore[no-untyped-def]
    """RMSNorm, or LayerNorm if ``centred``."""
    if centred != 0:
        _centre_row(x, width, out)
        x = out
    rms_norm_row(x, weight, epsilon, out, width)


@intrinsic
def copy_row(typingctx, x, width, out):  # type: ignore[no-untyped-def]
    """Copies ``width`` float32, a multiple of 16."""

    def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
        x, width, out = args
        with cgutils.for_range(b, b.udiv(width, i64(16))) as loop:
            value = vec.load(b, vec.offset(b, x, loop.index, 64), VF32)
            vec.store(b, value, vec.offset(b, out, loop.index, 64))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@intrinsic
def _add_row(typingctx, x, width, out):  # type: ignore[no-untyped-def]
    """``out += x``; ``width`` a multiple of 16."""

    def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
        x, width, out = args
        with cgutils.for_range(b, b.udiv(width, i64(16))) as loop:
            target = vec.offset(b, out, loop.index, 64)
            value = vec.load(b, vec.offset(b, x, loop.index, 64), VF32)
            vec.store(b, b.fadd(vec.load(b, target, VF32), value), target)
        return context.get_dummy_value()

    return types.void(*([types.int64] * 3)), codegen


@intrinsic
def add_scaled_row(typingctx, x, width, factor, out):  # type: ignore[no-untyped-def]
    """``out += factor * x``; ``width`` a multiple of 16."""

    def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
        x, width, factor, out = args
        factors = vec.splat(b, factor)
        with cgutils.for_range(b, b.udiv(width, i64(16))) as loop:
            target = vec.offset(b, out, loop.index, 64)
            value = vec.load(b, vec.offset(b, x, loop.index, 64), VF32)
            vec.store(b, vec.fma(b, value, factors, vec.load(b, target, VF32)), target)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.float32, types.int64), codegen


@njit
def _rows_per_task(num_rows, num_threads):  # type: ignore[no-untyped-def]
    return max(1, num_rows // (4 * num_threads))


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
            x = load_i64(stage, X) + m * load_i64(stage, X_STRIDE)
            store_quantised(stage, x, m, 0, load_i64(stage, WIDTH) // 32)


@op
def norm_rows(stage: int, step: int, counter: int, thread: int) -> None:
    """The norm of rows of X to OUT, or only quantised where that is 0."""
    num_rows = load_i64(step, load_i64(stage, ROWS))
    size = _rows_per_task(num_rows, load_i64(step, NUM_THREADS))
    index_word = load_i64(stage, INDEX)
    kept = load_i64(stage, KEPT)
    local = load_i64(step, SCRATCH) + thread * load_i64(step, SCRATCH_BYTES)
    epsilon = bits_to_f32(load_i64(stage, EPSILON))
    while True:
        first = next_task(counter) * size
        if first >= num_rows:
            break
        for m in range(first, min(first + size, num_rows)):
            source = m
            if index_word != 0:
                source = load_i32(load_i64(step, index_word), m)
            out = load_i64(stage, OUT)
            out = local if out == 0 else out + m * load_i64(stage, OUT_STRIDE)
            x = load_i64(stage, X) + source * load_i64(stage, X_STRIDE)
            if kept != 0:
                copy_row(x, load_i64(stage, WIDTH), kept + m * load_i64(stage, KEPT_STRIDE))
            weight, width = load_i64(stage, WEIGHT), load_i64(stage, WIDTH)
            if weight == 0:
                copy_row(x, width, out)
            else:
                normalise_row(x, weight, epsilon, out, width, load_i64(stage, CENTRED))
            if load_i64(stage, NORM_BIAS) != 0:
                _add_row(load_i64(stage, NORM_BIAS), width, out)
            store_quantised(stage, out, m, 0, load_i64(stage, WIDTH) // 32)


@op
def add_norm_rows(stage: int, step: int, counter: int, thread: int) -> None:
    """Adds the RMSNorm of rows of X, which it overwrites, to OUT; with no WEIGHT, the rows."""
    num_rows = load_i64(step, load_i64(stage, ROWS))
    size = _rows_per_task(num_rows, load_i64(step, NUM_THREADS))
    epsilon = bits_to_f32(load_i64(stage, EPSILON))
    width = load_i64(stage, WIDTH)
    while True:
        first = next_task(counter) * size
        if first >= num_rows:
            break
        for m in range(first, min(first + size, num_rows)):
            x = load_i64(stage, X) + m * load_i64(stage, X_STRIDE)
            rms_norm_row(x, load_i64(stage, WEIGHT), epsilon, x, width)
            _add_row(x, width, load_i64(stage, OUT) + m * load_i64(stage, OUT_STRIDE))


@op
def embed_rows(stage: int, step: int, counter: int, thread: int) -> None:
    """Dequantises the embedding of each token to OUT."""
    num_rows = load_i64(step, NUM_TOKENS)
    size = _rows_per_task(num_rows, load_i64(step, NUM_THREADS))
    bits = load_i64(stage, TABLE_BITS)
    zero_point = load_i64(stage, TABLE_ZERO_POINT)
    least = load_i64(stage, TABLE_LEAST)
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
                elif bits == 16:
                    for k in range(32):
                        at = k * 16 + lane
                        value = load_bf16(words, at) if least == BF16 else load_f16(words, at)
                        store_f32(out, g * 32 + k, value * scale)
                else:
                    d = load_f16(words + group_bytes, lane)
                    second = d
                    low = d * 0
                    if least == MINIMUM:
                        low = load_f16(words + group_bytes + 32, lane)
                    elif least == MIDDLE:
                        low = load_bf16(words + group_bytes + 32, lane)
                    elif least == SECOND_SCALE:
                        second = load_f16(words + group_bytes + 32, lane)
                    for k in range(32):
                        if bits == 8:
                            q = load_i8(words, (k // 4 * 16 + lane) * 4 + k % 4) & 255
                        else:
                            byte = load_i8(words, (k % 16 // 4 * 16 + lane) * 4 + k % 4) & 255
                            q = byte >> (k // 16 * 4) & 15
                        value = types.float32(q - zero_point) * (d if k < 16 else second) + low
                        store_f32(out, g * 32 + k, value * scale)

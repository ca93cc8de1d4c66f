# ruff: noqa: ARG001 (numba calls intrinsics and operations with fixed arguments)
"""Linear layers on weights as stored, for one or many rows of activations.

A weight block is 16 output rows by all inputs, laid out by ``weights.pack``. A task multiplies a
few blocks with every activation row, in register tiles of up to eight rows. The order of one row's
sum (groups in order, one fused multiply-add each) is the same in every tile, so a row's result
never depends on how many others there are.

Activations are int8 with one scale a group of 32 (as GGML's Q8_0), or float32 for reference.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ramet.kernels.cpu import ir as vec
from ramet.kernels.cpu.compiled import Op
from ramet.kernels.cpu.dot import group_dot
from ramet.kernels.cpu.features import DotPath
from ramet.kernels.cpu.ir import F16, F32, I32, VF32, VI32, Builder, Value, Variable, i64
from ramet.kernels.cpu.memory import load_i64, next_task
from ramet.kernels.cpu.weights import FORMATS, WeightFormat

# Operands of a stage.
WEIGHT, NUM_BLOCKS, NUM_GROUPS, BLOCK_BYTES = 2, 3, 4, 5
X, X_STRIDE = 6, 7  # int8 or float32 activations; bytes between rows
SCALES, SCALED_SUMS, SUMS, SCALE_STRIDE = 8, 9, 10, 11  # of int8 activations; see rows.quantise
Y, Y_STRIDE = 12, 13  # float32 results
ROWS = 14  # the word of the step's record that holds the number of rows
ACCUMULATE = 15  # 1: add to y
BIAS = 16  # address of float32[16 * blocks], or 0
TASK_BLOCKS = 17


def _load_weights(b: Builder, form: WeightFormat, quants: Value) -> list[Value]:
    """A group's eight vectors of words of unsigned bytes."""
    if form.bits == 8:
        return [vec.load(b, quants, VI32, 64 * t) for t in range(8)]
    raw = [vec.load(b, quants, VI32, 64 * t) for t in range(4)]
    nibbles = vec.vi32(0x0F0F0F0F)
    low = [b.and_(word, nibbles) for word in raw]
    high = [b.and_(b.lshr(word, vec.vi32(4)), nibbles) for word in raw]
    return low + high


def _byte(b: Builder, words: Value, index: int) -> Value:
    """Byte ``index`` of each word as float32."""
    shifted = b.lshr(words, vec.vi32(8 * index)) if index else words
    return b.uitofp(b.and_(shifted, vec.vi32(0xFF)), VF32)


def _tile(form: WeightFormat, path: DotPath | None, m: int) -> Any:
    """The register tile: 16 outputs of ``m`` rows. ``path`` None: float32 activations."""

    @intrinsic
    def tile(  # type: ignore[no-untyped-def]
        typingctx,
        w,
        num_groups,
        x,
        x_stride,
        scales,
        scaled,
        sums,
        scale_stride,
        y,
        y_stride,
        accumulate,
        bias,
    ):
        def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
            (w, num_groups, x, x_stride, scales, scaled, sums, scale_stride, y, y_stride,
             accumulate, bias) = args  # fmt: skip
            rows = range(m)
            x_rows = [vec.offset(b, x, i64(r), x_stride) for r in rows]
            side = [
                [vec.offset(b, base, i64(r), scale_stride) for r in rows]
                for base in (scales, scaled, sums)
            ]
            totals = [Variable(b, vec.vf32(0.0)) for _ in rows]
            scale_base = vec.offset(b, w, num_groups, form.group_bytes)
            minimum_base = vec.offset(b, scale_base, num_groups, 32)
            with cgutils.for_range(b, num_groups) as loop:
                g = loop.index
                quants = vec.offset(b, w, g, form.group_bytes)
                x_group = [vec.offset(b, row, g, 32 if path is not None else 128) for row in x_rows]
                side_group = [[vec.offset(b, row, g, 4) for row in part] for part in side]
                scale_at = vec.offset(b, scale_base, g, 32)
                minimum_at = vec.offset(b, minimum_base, g, 32)
                if form.bits == 32:
                    _float_group(b, [vec.load(b, quants, VF32, 64 * k) for k in range(32)],
                                 x_group, totals)  # fmt: skip
                    return_early = True
                else:
                    return_early = False
                if not return_early:
                    weights = _load_weights(b, form, quants)
                    d = b.fpext(vec.load(b, scale_at, vec.vector(F16)), VF32)
                    low = (
                        b.fpext(vec.load(b, minimum_at, vec.vector(F16)), VF32)
                        if form.has_minimum
                        else None
                    )
                    if path is None:
                        _float_group(b, _dequantised(b, form, weights, d, low), x_group, totals)
                    else:
                        for r in rows:
                            start = vec.vi32(0)
                            if form.zero_point:
                                total = vec.load(b, side_group[2][r], I32)
                                start = vec.splat(b, b.mul(total, vec.i32(-form.zero_point)))
                            dot = group_dot(b, path, form.bits, weights, x_group[r], start)
                            scale = vec.splat(b, vec.load(b, side_group[0][r], F32))
                            value = totals[r].get()
                            value = vec.fma(b, b.sitofp(dot, VF32), b.fmul(d, scale), value)
                            if low is not None:
                                total = vec.splat(b, vec.load(b, side_group[1][r], F32))
                                value = vec.fma(b, low, total, value)
                            totals[r].set(value)
            with b.if_then(b.icmp_unsigned("!=", bias, i64(0))):
                for total in totals:
                    total.set(b.fadd(total.get(), vec.load(b, bias, VF32)))
            y_rows = [vec.offset(b, y, i64(r), y_stride) for r in rows]
            with b.if_then(b.icmp_unsigned("!=", accumulate, i64(0))):
                for total, row in zip(totals, y_rows, strict=True):
                    total.set(b.fadd(total.get(), vec.load(b, row, VF32)))
            for total, row in zip(totals, y_rows, strict=True):
                vec.store(b, total.get(), row)
            return context.get_dummy_value()

        return types.void(*([types.int64] * 12)), codegen

    return tile


def _dequantised(
    b: Builder, form: WeightFormat, weights: list[Value], d: Value, low: Value | None
) -> list[Value]:
    """A group's 32 inputs, each as 16 float32 weights."""
    values = []
    for words in weights:
        for index in range(4):
            value = _byte(b, words, index)
            if form.zero_point:
                value = b.fsub(value, vec.vf32(form.zero_point))
            values.append(b.fmul(value, d) if low is None else vec.fma(b, value, d, low))
    return values


def _float_group(
    b: Builder, weights: list[Value], x_group: list[Value], totals: list[Variable]
) -> None:
    for k, weight in enumerate(weights):
        for at, total in zip(x_group, totals, strict=True):
            scalar = vec.splat(b, vec.load(b, at, F32, 4 * k))
            total.set(vec.fma(b, weight, scalar, total.get()))


@cache
def linear_op(format_name: str, path: DotPath | None) -> Op:
    """``y[rows, 16 * blocks] (+)= x @ w.T + bias`` for a weight format.

    ``path``: the integer dot product for int8 activations; None: float32 activations.
    """
    form = FORMATS[format_name]
    tile8, tile4, tile2, tile1 = (_tile(form, path, m) for m in (8, 4, 2, 1))

    def linear(stage: int, step: int, counter: int, thread: int) -> None:
        num_blocks = load_i64(stage, NUM_BLOCKS)
        groups = load_i64(stage, NUM_GROUPS)
        block_bytes = load_i64(stage, BLOCK_BYTES)
        x = load_i64(stage, X)
        ldx = load_i64(stage, X_STRIDE)
        scales = load_i64(stage, SCALES)
        scaled = load_i64(stage, SCALED_SUMS)
        sums = load_i64(stage, SUMS)
        lds = load_i64(stage, SCALE_STRIDE)
        ldy = load_i64(stage, Y_STRIDE)
        add = load_i64(stage, ACCUMULATE)
        task_blocks = load_i64(stage, TASK_BLOCKS)
        num_rows = load_i64(step, load_i64(stage, ROWS))
        while True:
            first = next_task(counter) * task_blocks
            if first >= num_blocks:
                break
            for block in range(first, min(first + task_blocks, num_blocks)):
                w = load_i64(stage, WEIGHT) + block * block_bytes
                y = load_i64(stage, Y) + block * 64
                bias = load_i64(stage, BIAS)
                if bias != 0:
                    bias += block * 64
                m = 0
                while m + 8 <= num_rows:
                    tile8(w, groups, x + m * ldx, ldx, scales + m * lds, scaled + m * lds,
                          sums + m * lds, lds, y + m * ldy, ldy, add, bias)  # fmt: skip
                    m += 8
                if m + 4 <= num_rows:
                    tile4(w, groups, x + m * ldx, ldx, scales + m * lds, scaled + m * lds,
                          sums + m * lds, lds, y + m * ldy, ldy, add, bias)  # fmt: skip
                    m += 4
                if m + 2 <= num_rows:
                    tile2(w, groups, x + m * ldx, ldx, scales + m * lds, scaled + m * lds,
                          sums + m * lds, lds, y + m * ldy, ldy, add, bias)  # fmt: skip
                    m += 2
                if m < num_rows:
                    tile1(w, groups, x + m * ldx, ldx, scales + m * lds, scaled + m * lds,
                          sums + m * lds, lds, y + m * ldy, ldy, add, bias)  # fmt: skip

    label = "float32" if path is None else path.replace("-", "_")
    return Op(f"linear_{format_name}_{label}", linear)

# ruff: noqa: ARG001 (numba calls intrinsics and operations with fixed arguments)
"""Register tiles of linear layers: 16 outputs of a few rows of activations, by vector instructions.

A weight block is 16 output rows by all inputs, laid out by ``cpu_weights.pack``. The order of one
row's sum (groups in order, one fused multiply-add each, then middles in pairs of groups) is the
same in every tile, so a row's result never depends on how many others there are.

Activations are int8 with one scale a group of 32 (as GGML's Q8_0), or float32 for reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ramet.kernels.cpu_support import ir as vec
from ramet.kernels.cpu_support.features import DotPath
from ramet.kernels.cpu_support.fetch import LINES
from ramet.kernels.cpu_support.ir import F32, I16, I32, VF32, VI32, Builder, Value, Variable, i64
from ramet.kernels.linear.cpu_dot import group_dot
from ramet.kernels.linear.cpu_weights import BLOCK_ROWS, WeightFormat

# Operands of every operation with a linear layer.
WEIGHT, NUM_BLOCKS, NUM_GROUPS, BLOCK_BYTES = 2, 3, 4, 5
X, X_STRIDE = 6, 7  # int8 or float32 activations; bytes between rows
SCALES, SCALED_SUMS, SUMS, SCALE_STRIDE = 8, 9, 10, 11  # of int8 activations; see quantise
ROWS = 12  # the word of the step's record that holds the number of rows
BIAS = 13  # address of float32[16 * blocks], or 0
# Operands of ``linear_op``.
Y, Y_STRIDE = 14, 15  # float32 results
ACCUMULATE = 16  # 1: add to y
TASK_BLOCKS = 17

TILE_ROWS = 16  # most rows of a tile
TASK_ROWS = 64  # most rows of a task: threads that share many rows end together
_FETCHING_ROWS = 3  # a tile of at least this many rows prefetches the next block


def register_tiles(form: WeightFormat, path: DotPath | None, sizes: Sequence[int]) -> Any:
    """Register tiles: 16 outputs of ``count`` rows, one of ``sizes``, each with code of its own.
    ``path`` None: float32 activations."""

    @intrinsic
    def tile(typingctx, count, stage, w, next_w, row, y, y_stride, accumulate, bias,  # type: ignore[no-untyped-def]
             fetch, fetch_last):  # fmt: skip
        def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
            done = b.append_basic_block("done")
            choice = b.switch(args[0], done)
            for m in sizes:
                block = b.append_basic_block(f"rows{m}")
                choice.add_case(i64(m), block)
                b.position_at_end(block)
                _emit_tile(b, form, path, m, args[1:])
                b.branch(done)
            b.position_at_end(done)
            return context.get_dummy_value()

        return types.void(*([types.int64] * 11)), codegen

    return tile


def _emit_tile(
    b: Builder, form: WeightFormat, path: DotPath | None, m: int, args: Sequence[Value]
) -> None:
    """The tile of ``m`` rows."""
    stage, w, next_w, row, y, y_stride, accumulate, bias, fetch, fetch_last = args

    def operand(number: int) -> Value:
        return vec.load(b, stage, vec.I64, 8 * number)

    num_groups = operand(NUM_GROUPS)
    x_stride, scale_stride = operand(X_STRIDE), operand(SCALE_STRIDE)
    x = vec.offset(b, operand(X), row, x_stride)
    side = [
        vec.offset(b, operand(number), row, scale_stride) for number in (SCALES, SCALED_SUMS, SUMS)
    ]
    totals = [Variable(b, vec.vf32(0.0)) for _ in range(m)]
    with cgutils.for_range(b, num_groups) as loop:
        g = loop.index
        x_group = vec.offset(b, x, g, 32 if path is not None else 128)
        rows = [vec.offset(b, x_group, i64(r), x_stride) for r in range(m)]
        quants = vec.offset(b, w, g, form.stride)
        if m >= _FETCHING_ROWS:  # the next block comes from memory while this one is worked on
            following = vec.offset(b, next_w, g, form.stride)
            for line in range(0, form.stride, 64):
                vec.prefetch(b, following, line)
        fetch_lines(b, m, g, fetch, fetch_last)
        if form.is_float:
            _float_group(b, _float_weights(b, form, quants), rows, totals)
        else:
            words, group = load_words(b, form, quants), load_sides(b, form, quants)
            if path is None:
                _float_group(b, _dequantised(b, form, words, group), rows, totals)
            else:
                bases = [vec.offset(b, base, g, 4) for base in side]
                sides = [
                    [vec.offset(b, base, i64(r), scale_stride) for base in bases] for r in range(m)
                ]
                _integer_group(b, form, path, (words, group), (rows, sides), totals)
    if form.has_middle:
        assert path == "avx512-vnni"
        sums = [vec.offset(b, side[1], i64(r), scale_stride) for r in range(m)]
        add_middles(b, form, w, num_groups, sums, totals)
    store_totals(b, totals, (y, y_stride), accumulate, bias)


def fetch_lines(b: Builder, m: int, group: Value, fetch: Value, fetch_last: Value) -> None:
    """Fetches a tile's lines of keys and values for a group (see ``fetch_piece``)."""
    if m < 8:
        return
    with b.if_then(b.icmp_unsigned("!=", fetch, i64(0))):
        at = vec.offset(b, fetch, group, m // 8 * 64 * LINES)
        at = b.select(b.icmp_unsigned("<", at, fetch_last), at, fetch_last)
        for line in range(m // 8 * LINES):
            vec.prefetch(b, at, 64 * line)


def store_totals(
    b: Builder,
    totals: list[Variable],
    place: tuple[Value, Value],
    accumulate: Value,
    bias: Value,
    count: Value | None = None,
) -> None:
    """Adds bias and what is at ``place`` (an address, and bytes between rows), if they are wanted,
    and stores the first ``count`` results there; None: all."""
    with b.if_then(b.icmp_unsigned("!=", bias, i64(0))):
        for total in totals:
            total.set(b.fadd(total.get(), vec.load(b, bias, VF32)))
    adds = b.icmp_unsigned("!=", accumulate, i64(0))
    rows = [vec.offset(b, place[0], i64(r), place[1]) for r in range(len(totals))]
    if count is None:
        _store_rows(b, totals, rows, adds)
        return
    for r, (total, at) in enumerate(zip(totals, rows, strict=True)):
        with b.if_then(b.icmp_unsigned("<", i64(r), count)):
            _store_rows(b, [total], [at], adds)


def _store_rows(b: Builder, totals: list[Variable], rows: list[Value], adds: Value) -> None:
    with b.if_then(adds):
        for total, at in zip(totals, rows, strict=True):
            total.set(b.fadd(total.get(), vec.load(b, at, VF32)))
    for total, at in zip(totals, rows, strict=True):
        vec.store(b, total.get(), at)


class Sides(NamedTuple):
    """A group's scales, its minimums, and the scales of its last 16 inputs where those differ."""

    scales: Value
    minimums: Value | None = None
    second_scales: Value | None = None


def load_words(b: Builder, form: WeightFormat, quants: Value) -> list[Value]:
    """A group's eight vectors of words of unsigned bytes."""
    if form.bits == 8:
        return [vec.load(b, quants, VI32, 64 * t) for t in range(8)]
    raw = [vec.load(b, quants, VI32, 64 * t) for t in range(4)]
    nibbles = vec.vi32(0x0F0F0F0F)
    words = [b.and_(word, nibbles) for word in raw]
    return words + [b.and_(b.lshr(word, vec.vi32(4)), nibbles) for word in raw]


def load_sides(b: Builder, form: WeightFormat, quants: Value) -> Sides:
    scales = vec.load_f16(b, quants, 16, form.group_bytes)
    if not (form.has_minimum or form.has_halves):
        return Sides(scales)
    others = vec.load_f16(b, quants, 16, form.group_bytes + 32)
    if form.has_halves:
        return Sides(scales, second_scales=others)
    return Sides(scales, others)


def _integer_group(
    b: Builder,
    form: WeightFormat,
    path: DotPath,
    group: tuple[list[Value], Sides],
    activations: tuple[list[Value], list[list[Value]]],
    totals: list[Variable],
) -> None:
    """Adds a group's products: integer sums, then scales and minimums."""
    words, sides = group
    for row, (scale_at, scaled_at, sum_at), total in zip(*activations, totals, strict=True):
        start = vec.vi32(0)
        if form.zero_point:  # sums come times -8
            shift = vec.vi32((form.zero_point // 8).bit_length() - 1)
            start = b.shl(vec.splat(b, vec.load(b, sum_at, I32)), shift)
        # Few rows leave the multiplier waiting for each sum; many keep it busy.
        num_chains = 4 if len(totals) <= 2 else 1
        if sides.second_scales is None:
            dots = [group_dot(b, path, form.bits, words, row, start, num_chains)]
        else:
            # The first half's share of the sum is what constant weights give.
            zeros = [vec.vi32(0x01010101 * form.zero_point)] * 4
            share = b.sub(vec.vi32(0), group_dot(b, path, form.bits, zeros, row, vec.vi32(0), 1))
            rest, at = b.sub(start, share), b.add(row, i64(16))
            dots = [
                group_dot(b, path, form.bits, words[:4], row, share, num_chains),
                group_dot(b, path, form.bits, words[4:], at, rest, num_chains),
            ]
        add_group(b, sides, dots, (scale_at, scaled_at), total)
        if len(totals) == 16:
            vec.fence(b)


def add_group(
    b: Builder, sides: Sides, dots: list[Value], row_sides: tuple[Value, Value], total: Variable
) -> None:
    """Adds a group's integer sums, one or one a half, to a row's total, scaled, and its minimums.

    ``row_sides``: addresses of the activations' scale and of their scaled sum.
    """
    x_scale = vec.splat(b, vec.load(b, row_sides[0], F32))
    value = total.get()
    for dot, scales in zip(dots, (sides.scales, sides.second_scales), strict=False):
        scale = b.fmul(scales, x_scale)
        value = vec.fma(b, b.sitofp(dot, VF32), scale, value)
    if sides.minimums is not None:
        value = vec.fma(b, sides.minimums, vec.splat(b, vec.load(b, row_sides[1], F32)), value)
    total.set(value)


def add_middles(
    b: Builder,
    form: WeightFormat,
    w: Value,
    num_groups: Value,
    sums: list[Value],
    totals: list[Variable],
) -> None:
    """Adds middles times the sums of activations at ``sums``, two groups at a time: half the
    multiplications that one group at a time would take."""
    middle_at = form.group_bytes + 2 * BLOCK_ROWS

    def middle(group: Value) -> Value:
        kind = vec.vector(I16)
        return b.zext(vec.load(b, vec.offset(b, w, group, form.stride), kind, middle_at), VI32)

    with cgutils.for_range(b, b.lshr(num_groups, i64(1))) as loop:
        first = b.shl(loop.index, i64(1))
        high = b.shl(middle(b.add(first, i64(1))), vec.vi32(16))
        pair = b.or_(middle(first), high)
        for at, total in zip(sums, totals, strict=True):
            pair_sums = vec.splat(b, vec.load(b, vec.offset(b, at, first, 2), I32))
            total.set(vec.dot_bf16(b, pair, pair_sums, total.get()))
    with b.if_then(b.trunc(num_groups, ir.IntType(1))):
        last = b.sub(num_groups, i64(1))
        for at, total in zip(sums, totals, strict=True):
            last_sum = b.zext(vec.load(b, vec.offset(b, at, last, 2), I16), I32)
            total.set(vec.dot_bf16(b, middle(last), vec.splat(b, last_sum), total.get()))


def _float_weights(b: Builder, form: WeightFormat, quants: Value) -> list[Value]:
    """A group's 32 inputs, stored as floats, each as 16 float32 weights."""
    if form.name == "f16":
        return [vec.load_f16(b, quants, 16, 32 * k) for k in range(32)]
    if form.name == "bf16":
        halves = [vec.load(b, quants, vec.vector(I16), 32 * k) for k in range(32)]
        return [b.bitcast(b.shl(b.zext(each, VI32), vec.vi32(16)), VF32) for each in halves]
    return [vec.load(b, quants, VF32, 64 * k) for k in range(32)]


def _dequantised(b: Builder, form: WeightFormat, words: list[Value], sides: Sides) -> list[Value]:
    """A group's 32 inputs, each as 16 float32 weights."""
    d, low, second = sides
    values = []
    for number, word in enumerate(words):
        if second is not None and number == 4:
            d = second
        for index in range(4):
            shifted = b.lshr(word, vec.vi32(8 * index)) if index else word
            value = b.uitofp(b.and_(shifted, vec.vi32(0xFF)), VF32)
            if form.zero_point:
                value = b.fsub(value, vec.vf32(form.zero_point))
            values.append(b.fmul(value, d) if low is None else vec.fma(b, value, d, low))
    return values


def _float_group(
    b: Builder, weights: list[Value], rows: list[Value], totals: list[Variable]
) -> None:
    for k, weight in enumerate(weights):
        for at, total in zip(rows, totals, strict=True):
            scalar = vec.splat(b, vec.load(b, at, F32, 4 * k))
            total.set(vec.fma(b, weight, scalar, total.get()))

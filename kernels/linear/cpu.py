# ruff: noqa: ARG001 (numba calls intrinsics and operations with fixed arguments)
"""Linear layers on weights as stored, for one or many rows of activations.

A weight block is 16 output rows by all inputs, laid out by ``weights.pack``. A task multiplies a
few blocks with up to 64 activation rows, in register tiles of up to 16 rows. The order of one row's
sum (groups in order, one fused multiply-add each, then middles in pairs of groups) is the same in
every tile, so a row's result never depends on how many others there are.

Activations are int8 with one scale a group of 32 (as GGML's Q8_0), or float32 for reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from ramet.kernels.cpu_support import ir as vec
from ramet.kernels.cpu_support.compiled_op import Op
from ramet.kernels.cpu_support.features import DotPath
from ramet.kernels.cpu_support.fetch import LINES, fetch_piece, fetch_plan
from ramet.kernels.cpu_support.ir import F32, I16, I32, VF32, VI32, Builder, Value, Variable, i64
from ramet.kernels.cpu_support.memory import load_i64, next_task
from ramet.kernels.linear.cpu_dot import group_dot
from ramet.kernels.linear.cpu_weights import BLOCK_ROWS, FORMATS, WeightFormat

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

TILE_ROWS = 16  # most rows of a register tile
_FETCHING_ROWS = 3  # a tile of at least this many rows prefetches the next block
TASK_ROWS = 64  # most rows of a task: threads that share many rows end together


def operation_label(format_name: str, path: DotPath | None) -> str:
    """The part of an operation's name that distinguishes its variants."""
    return f"{format_name}_{'float32' if path is None else path.replace('-', '_')}"


def _tiles(form: WeightFormat, path: DotPath | None, sizes: Sequence[int]) -> Any:
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
        if m >= 8:
            with b.if_then(b.icmp_unsigned("!=", fetch, i64(0))):
                at = vec.offset(b, fetch, g, m // 8 * 64 * LINES)
                at = b.select(b.icmp_unsigned("<", at, fetch_last), at, fetch_last)
                for line in range(m // 8 * LINES):
                    vec.prefetch(b, at, 64 * line)
        if form.bits == 32:
            weights = [vec.load(b, quants, VF32, 64 * k) for k in range(32)]
            _float_group(b, weights, rows, totals)
        else:
            group = _load_group(b, form, quants)
            if path is None:
                _float_group(b, _dequantised(b, form, group), rows, totals)
            else:
                bases = [vec.offset(b, base, g, 4) for base in side]
                sides = [
                    [vec.offset(b, base, i64(r), scale_stride) for base in bases] for r in range(m)
                ]
                _integer_group(b, form, path, group, (rows, sides), totals)
    if form.has_middle:
        assert path == "avx512-vnni"
        sums = [vec.offset(b, side[1], i64(r), scale_stride) for r in range(m)]
        _middles(b, form, w, num_groups, sums, totals)
    with b.if_then(b.icmp_unsigned("!=", bias, i64(0))):
        for total in totals:
            total.set(b.fadd(total.get(), vec.load(b, bias, VF32)))
    y_rows = [vec.offset(b, y, i64(r), y_stride) for r in range(m)]
    with b.if_then(b.icmp_unsigned("!=", accumulate, i64(0))):
        for total, at in zip(totals, y_rows, strict=True):
            total.set(b.fadd(total.get(), vec.load(b, at, VF32)))
    for total, at in zip(totals, y_rows, strict=True):
        vec.store(b, total.get(), at)


class _Group(NamedTuple):
    """One group of a block: eight vectors of words of unsigned bytes, scales, minimums, and the
    scales of the last four vectors, if they have their own."""

    words: list[Value]
    scales: Value
    minimums: Value | None = None
    second_scales: Value | None = None


def _load_group(b: Builder, form: WeightFormat, quants: Value) -> _Group:
    if form.bits == 8:
        words = [vec.load(b, quants, VI32, 64 * t) for t in range(8)]
    else:
        raw = [vec.load(b, quants, VI32, 64 * t) for t in range(4)]
        nibbles = vec.vi32(0x0F0F0F0F)
        words = [b.and_(word, nibbles) for word in raw]
        words += [b.and_(b.lshr(word, vec.vi32(4)), nibbles) for word in raw]
    scales = vec.load_f16(b, quants, 16, form.group_bytes)
    if not (form.has_minimum or form.has_halves):
        return _Group(words, scales)
    others = vec.load_f16(b, quants, 16, form.group_bytes + 32)
    if form.has_halves:
        return _Group(words, scales, second_scales=others)
    return _Group(words, scales, others)


def _integer_group(
    b: Builder,
    form: WeightFormat,
    path: DotPath,
    group: _Group,
    activations: tuple[list[Value], list[list[Value]]],
    totals: list[Variable],
) -> None:
    """Adds a group's products: integer sums, then scales and minimums."""
    words, d, low, second = group
    for row, (scale_at, scaled_at, sum_at), total in zip(*activations, totals, strict=True):
        start = vec.vi32(0)
        if form.zero_point:  # sums come times -8
            shift = vec.vi32((form.zero_point // 8).bit_length() - 1)
            start = b.shl(vec.splat(b, vec.load(b, sum_at, I32)), shift)
        # Few rows leave the multiplier waiting for each sum; many keep it busy.
        num_chains = 4 if len(totals) <= 2 else 1
        x_scale = vec.splat(b, vec.load(b, scale_at, F32))
        value = total.get()
        if second is None:
            dots = [(group_dot(b, path, form.bits, words, row, start, num_chains), d)]
        else:
            # The first half's share of the sum is what constant weights give.
            zeros = [vec.vi32(0x01010101 * form.zero_point)] * 4
            share = b.sub(vec.vi32(0), group_dot(b, path, form.bits, zeros, row, vec.vi32(0), 1))
            rest, at = b.sub(start, share), b.add(row, i64(16))
            dots = [
                (group_dot(b, path, form.bits, words[:4], row, share, num_chains), d),
                (group_dot(b, path, form.bits, words[4:], at, rest, num_chains), second),
            ]
        for dot, scales in dots:
            scale = b.fmul(scales, x_scale)
            value = vec.fma(b, b.sitofp(dot, VF32), scale, value)
        if low is not None:
            value = vec.fma(b, low, vec.splat(b, vec.load(b, scaled_at, F32)), value)
        total.set(value)
        if len(totals) == 16:
            vec.fence(b)


def _middles(
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


def _dequantised(b: Builder, form: WeightFormat, group: _Group) -> list[Value]:
    """A group's 32 inputs, each as 16 float32 weights."""
    words, d, low, second = group
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


@cache
def block_product(format_name: str, path: DotPath | None) -> Any:
    """A compiled function that multiplies one weight block with rows ``first:end``.

    ``product(stage, w, next_w, first, end, y, y_stride, accumulate, bias, fetch, fetch_last)``:
    ``stage`` has the operands of ``WEIGHT`` to ``SCALE_STRIDE``; ``w``, ``y`` (of row ``first``)
    and ``bias`` are the block's addresses, ``next_w`` that of the block that the thread turns to
    next; of ``fetch`` see ``fetch_piece``.
    """
    form = FORMATS[format_name]
    # Where weights are unpacked, tiles of 16 rows do that half as often; 32 registers are just
    # enough for them.
    largest = 16 if form.bits == 4 and path == "avx512-vnni" else 8
    tile = _tiles(form, path, sorted({*range(1, 9), largest}))

    def product(stage, w, next_w, first, end, y, y_stride, accumulate, bias,  # type: ignore[no-untyped-def]
                fetch, fetch_last):  # fmt: skip
        m = first
        while m < end:
            count = largest if end - m >= largest else min(end - m, 8)
            tile(count, stage, w, next_w, m, y, y_stride, accumulate, bias, fetch, fetch_last)
            m += count
            y += count * y_stride
            if fetch != 0:
                fetch += count // 8 * 64 * LINES * load_i64(stage, NUM_GROUPS)

    return _compiled(product, f"product_{operation_label(format_name, path)}")


def _compiled(function: Any, name: str) -> Any:
    """``njit``; compiled code is linked by name, so each variant needs a name of its own."""
    function.__name__ = function.__qualname__ = name
    return njit(function)


@njit
def task_piece(task, size, count, part_rows, num_rows):  # type: ignore[no-untyped-def]
    """What a task works on: ``size`` of ``count`` units of the weights (its first, and their end)
    by ``part_rows`` of the rows (likewise). Tasks of the same units follow each other; past the
    last task, and where there are no rows, the first unit is ``count`` or more."""
    if num_rows == 0:
        return count, count, 0, 0
    num_parts = (num_rows + part_rows - 1) // part_rows
    first = task // num_parts * size
    begin = task % num_parts * part_rows
    return first, min(first + size, count), begin, min(begin + part_rows, num_rows)


@cache
def linear_op(format_name: str, path: DotPath | None) -> Op:
    """``y[rows, 16 * blocks] (+)= x @ w.T + bias`` for a weight format.

    ``path``: the integer dot product for int8 activations; None: float32 activations.
    """
    product = block_product(format_name, path)

    def linear(stage: int, step: int, counter: int, thread: int) -> None:
        num_blocks = load_i64(stage, NUM_BLOCKS)
        task_blocks = load_i64(stage, TASK_BLOCKS)
        num_rows = load_i64(step, load_i64(stage, ROWS))
        y_stride = load_i64(stage, Y_STRIDE)
        accumulate = load_i64(stage, ACCUMULATE)
        bias = load_i64(stage, BIAS)
        block_bytes = load_i64(stage, BLOCK_BYTES)
        plan = fetch_plan(stage, step, num_rows, load_i64(stage, NUM_GROUPS))
        num_tiles = (num_rows + TILE_ROWS - 1) // TILE_ROWS
        task = next_task(counter)
        while True:
            first, end, begin, stop = task_piece(task, task_blocks, num_blocks, TASK_ROWS, num_rows)
            if first >= num_blocks:
                break
            task = next_task(counter)
            following = task_piece(task, task_blocks, num_blocks, TASK_ROWS, num_rows)[0]
            for block in range(first, end):
                w = load_i64(stage, WEIGHT) + block * block_bytes
                next_w = w + block_bytes
                if block + 1 == end and following < num_blocks:
                    next_w = load_i64(stage, WEIGHT) + following * block_bytes
                y = load_i64(stage, Y) + block * 64
                block_bias = bias + block * 64 if bias != 0 else 0
                for m in range(begin, stop, TILE_ROWS):
                    tile = block * num_tiles + m // TILE_ROWS
                    fetch, fetch_last = fetch_piece(stage, step, plan, tile)
                    product(stage, w, next_w, m, min(m + TILE_ROWS, stop), y + m * y_stride,
                            y_stride, accumulate, block_bias, fetch, fetch_last)  # fmt: skip

    return Op(f"linear_{operation_label(format_name, path)}", linear)

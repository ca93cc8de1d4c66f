# ruff: noqa: ARG001 (operations have fixed arguments)
"""Linear layers on weights as stored, for one or many rows of activations.

A task multiplies a few weight blocks with up to 64 activation rows, in tiles of up to 16 rows.
Activations are int8 with one scale a group of 32 (as GGML's Q8_0), or float32 for reference.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from numba import njit

from ramet.kernels.cpu_support.compiled_op import Op
from ramet.kernels.cpu_support.features import DotPath, tiles_of, vector_path
from ramet.kernels.cpu_support.fetch import LINES, fetch_piece, fetch_plan
from ramet.kernels.cpu_support.memory import load_i64, next_task
from ramet.kernels.cpu_support.step import SCRATCH, SCRATCH_BYTES
from ramet.kernels.linear.cpu import (
    ACCUMULATE,
    BIAS,
    BLOCK_BYTES,
    NUM_BLOCKS,
    NUM_GROUPS,
    ROWS,
    TASK_BLOCKS,
    TASK_ROWS,
    TILE_ROWS,
    WEIGHT,
    Y_STRIDE,
    Y,
    register_tiles,
)
from ramet.kernels.linear.cpu_amx import (
    GROUP_BYTES,
    LEAST_ROWS,
    TILE_KINDS,
    amx_tiles,
    configuring,
    unpacking,
)
from ramet.kernels.linear.cpu_weights import FORMATS


def operation_label(format_name: str, path: DotPath | None) -> str:
    """The part of an operation's name that distinguishes its variants."""
    return f"{format_name}_{'float32' if path is None else path.replace('-', '_')}"


class BlockProduct(NamedTuple):
    """Compiled functions of one weight format and path.

    ``multiply(stage, w, next_w, first, end, y, y_stride, accumulate, bias, fetch, fetch_last,
    unpacked)`` multiplies one weight block with rows ``first:end``. ``stage`` has the operands of
    ``WEIGHT`` to ``SCALE_STRIDE``; ``w``, ``y`` (of row ``first``) and ``bias`` are the block's
    addresses, ``next_w`` that of the block that the thread turns to next; of ``fetch`` see
    ``fetch_piece``; ``unpacked`` is what ``unpack`` gave.

    ``unpack(w, num_groups, num_rows, out)`` writes what tile instructions read of a block for so
    many rows to ``out`` (``GROUP_BYTES`` a group), and returns its address; or 0 if the rows take
    none.
    """

    multiply: Any
    unpack: Any


@cache
def block_product(format_name: str, path: DotPath | None) -> BlockProduct:
    """The product of a block by the path's arithmetic."""
    form, tiles = FORMATS[format_name], tiles_of(path)
    if tiles is None:
        # Where weights are unpacked, tiles of 16 rows do that half as often; 32 registers are just
        # enough for them.
        has_large = form.bits == 4 and path == "avx512-vnni"
        return BlockProduct(_vector_product(format_name, path, 16 if has_large else 8), _no_tiles)
    label = operation_label(format_name, path)
    tile = amx_tiles(form, TILE_KINDS[tiles])
    multiply_few = _vector_product(format_name, vector_path(path), 8)

    def multiply_many(stage, w, next_w, first, end, y, y_stride, accumulate, bias,  # type: ignore[no-untyped-def]
                      fetch, fetch_last, unpacked):  # fmt: skip
        m = first
        while end - m >= LEAST_ROWS:
            count = min(end - m, TILE_ROWS)
            tile(count, stage, w, next_w, m, y, y_stride, accumulate, bias, fetch, fetch_last,
                 unpacked)  # fmt: skip
            m += count
            y += count * y_stride
            if fetch != 0:
                fetch += count // 8 * 64 * LINES * load_i64(stage, NUM_GROUPS)
        if m < end:
            multiply_few(stage, w, next_w, m, end, y, y_stride, accumulate, bias, 0, 0, 0)

    many = _compiled(multiply_many, f"tiles_{label}")

    def multiply(stage, w, next_w, first, end, y, y_stride, accumulate, bias,  # type: ignore[no-untyped-def]
                 fetch, fetch_last, unpacked):  # fmt: skip
        if unpacked == 0:
            multiply_few(stage, w, next_w, first, end, y, y_stride, accumulate, bias,
                         fetch, fetch_last, 0)  # fmt: skip
        else:
            many(stage, w, next_w, first, end, y, y_stride, accumulate, bias,
                 fetch, fetch_last, unpacked)  # fmt: skip

    unpack_groups = unpacking(form)

    def unpack(w, num_groups, num_rows, out):  # type: ignore[no-untyped-def]
        if num_rows < LEAST_ROWS:
            return 0
        unpack_groups(w, num_groups, out)
        return out

    # Few rows wait for one more call of a function as large as these: so it is no call.
    inlined = _compiled(multiply, f"product_{label}", inline="always")
    return BlockProduct(inlined, _compiled(unpack, f"unpack_{label}"))


@cache
def _vector_product(format_name: str, path: DotPath | None, largest: int) -> Any:
    """``multiply`` by register tiles of up to 8, and of ``largest`` rows."""
    tile = register_tiles(FORMATS[format_name], path, sorted({*range(1, 9), largest}))

    def multiply(stage, w, next_w, first, end, y, y_stride, accumulate, bias,  # type: ignore[no-untyped-def]
                 fetch, fetch_last, unpacked):  # fmt: skip
        m = first
        while m < end:
            count = largest if end - m >= largest else min(end - m, 8)
            tile(count, stage, w, next_w, m, y, y_stride, accumulate, bias, fetch, fetch_last)
            m += count
            y += count * y_stride
            if fetch != 0:
                fetch += count // 8 * 64 * LINES * load_i64(stage, NUM_GROUPS)

    return _compiled(multiply, f"product_{largest}_{operation_label(format_name, path)}")


@njit
def _no_tiles(w, num_groups, num_rows, out):  # type: ignore[no-untyped-def]
    return 0


class TileSession(NamedTuple):
    """Compiled functions ``begin(num_rows)`` and ``end(num_rows)``, around an operation on so many
    rows in a thread."""

    begin: Any
    end: Any


@cache
def tile_session(path: DotPath | None) -> TileSession:
    """What a path's tile instructions need."""
    tiles = tiles_of(path)
    if tiles is None:
        return TileSession(_nothing, _nothing)
    configure, release = configuring(TILE_KINDS[tiles])

    def begin(num_rows):  # type: ignore[no-untyped-def]
        if num_rows >= LEAST_ROWS:
            configure()

    def end(num_rows):  # type: ignore[no-untyped-def]
        if num_rows >= LEAST_ROWS:
            release()

    return TileSession(
        _compiled(begin, f"begin_tiles_{tiles}"), _compiled(end, f"end_tiles_{tiles}")
    )


@njit
def _nothing(num_rows):  # type: ignore[no-untyped-def]
    return None


def unpacked_bytes(path: DotPath | None, num_groups: int, num_blocks: int) -> int:
    """Scratch of a thread that works on so many blocks at a time."""
    return GROUP_BYTES * num_groups * num_blocks if tiles_of(path) else 0


def _compiled(function: Any, name: str, inline: str = "never") -> Any:
    """``njit``; compiled code is linked by name, so the name must tell the variants apart."""
    function.__name__ = function.__qualname__ = name
    return njit(inline=inline)(function)


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
    multiply, unpack = block_product(format_name, path)
    begin_tiles, end_tiles = tile_session(path)

    def linear(stage: int, step: int, counter: int, thread: int) -> None:
        num_blocks = load_i64(stage, NUM_BLOCKS)
        task_blocks = load_i64(stage, TASK_BLOCKS)
        num_rows = load_i64(step, load_i64(stage, ROWS))
        y_stride = load_i64(stage, Y_STRIDE)
        accumulate = load_i64(stage, ACCUMULATE)
        bias = load_i64(stage, BIAS)
        block_bytes = load_i64(stage, BLOCK_BYTES)
        num_groups = load_i64(stage, NUM_GROUPS)
        plan = fetch_plan(stage, step, num_rows, num_groups)
        num_tiles = (num_rows + TILE_ROWS - 1) // TILE_ROWS
        local = load_i64(step, SCRATCH) + thread * load_i64(step, SCRATCH_BYTES)
        begin_tiles(num_rows)
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
                unpacked = unpack(w, num_groups, stop - begin, local)
                for m in range(begin, stop, TILE_ROWS):
                    tile = block * num_tiles + m // TILE_ROWS
                    fetch, fetch_last = fetch_piece(stage, step, plan, tile)
                    ahead = next_w if m == begin else w
                    multiply(stage, w, ahead, m, min(m + TILE_ROWS, stop), y + m * y_stride,
                             y_stride, accumulate, block_bias, fetch, fetch_last,
                             unpacked)  # fmt: skip
        end_tiles(num_rows)

    return Op(f"linear_{operation_label(format_name, path)}", linear)

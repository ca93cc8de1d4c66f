# ruff: noqa: ARG001 (numba calls intrinsics and operations with fixed arguments)
"""Linear layers fused with what follows them, row tile by row tile.

``gated_op``: gate and up projections, their activation and product, quantised for the next layer.
``heads_op``: a projection to heads, then bias, head norm, rotation (Su et al. 2021, half-split
pairs), and the write of keys and values to their pages.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Literal

from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from ramet.kernels.cpu_support import ir as vec
from ramet.kernels.cpu_support.compiled_op import Op
from ramet.kernels.cpu_support.features import DotPath
from ramet.kernels.cpu_support.fetch import fetch_piece, fetch_plan
from ramet.kernels.cpu_support.ir import VF32, Builder, Value, i64
from ramet.kernels.cpu_support.memory import (
    bits_to_f32,
    load_f32,
    load_i32,
    load_i64,
    next_task,
    store_f32,
)
from ramet.kernels.cpu_support.quantise import store_quantised
from ramet.kernels.cpu_support.step import POSITIONS, SCRATCH, SCRATCH_BYTES
from ramet.kernels.linear.cpu import (
    BIAS,
    BLOCK_BYTES,
    NUM_BLOCKS,
    NUM_GROUPS,
    ROWS,
    TASK_ROWS,
    TILE_ROWS,
    WEIGHT,
)
from ramet.kernels.linear.cpu_kv import HEAD_DIM, store_head
from ramet.kernels.linear.cpu_product import (
    block_product,
    operation_label,
    task_piece,
    tile_session,
    unpacked_bytes,
)
from ramet.kernels.norm.cpu import normalise_row

Gate = Literal["silu", "gelu_tanh", "clamped"]

_Function = Callable[[Builder, Value], Value]
_HEAD_ROWS = 32  # most rows of a task of ``heads_op``: there are few heads

_UNIT_BLOCKS = 4  # two of the gate and two of the up projection

# Operands of ``gated_op``; those of ``linear`` up to BIAS are the gate's.
UP_WEIGHT, UP_BLOCK_BYTES = 14, 15
OUT, OUT_STRIDE = 16, 17  # float32 results, or 0: only quantised ones are wanted
TASK_UNITS = 18  # units of 32 results a task

# Operands of ``heads_op``.
HEAD_KIND = 14  # HEAD_DIM of ``cpu_kv`` is 15
QUERIES, KEYS, VALUES = 0, 1, 2
HEAD_OUT, HEAD_OUT_STRIDE = 16, 17  # float32 rows of all heads; of queries
ROPE_DIM, COSINES, SINES = 18, 19, 20  # float32[positions, rope_dim / 2]
QUERY_SCALE = 21  # float64 bits
HEAD_NORM, HEAD_EPSILON = 22, 23  # float32[head_dim] or 0; float64 bits
# PAGES to KV_INT8 of ``cpu_kv``: 24 to 27 and 37.
HEAD_NORM_STRIDE = 28  # bytes from one head's weights to the next one's; 0: all have the same
HEAD_CENTRED = 29  # 1: LayerNorm


def scratch_bytes(path: DotPath | None, head_dim: int, num_groups: int) -> int:
    """Bytes of one thread's scratch that these operations need for so many groups of inputs."""
    num_blocks = max(_UNIT_BLOCKS, head_dim // 16)
    results = TILE_ROWS * 4 * max(64, head_dim)
    return results + unpacked_bytes(path, num_groups, num_blocks)


def _silu(b: Builder, x: Value) -> Value:
    return _times_sigmoid(b, x, b.fneg(x))


def _gelu_tanh(b: Builder, x: Value) -> Value:
    """``x * sigmoid(2 * sqrt(2 / pi) * (x + 0.044715 x**3))``, which is the tanh form."""
    cube = b.fmul(b.fmul(x, x), x)
    inner = b.fmul(vec.fma(b, cube, vec.vf32(0.044715), x), vec.vf32(-1.5957691216057308))
    return _times_sigmoid(b, x, inner)


def _times_sigmoid(b: Builder, x: Value, inner: Value) -> Value:
    """``x / (1 + exp(inner))``."""
    inner = vec.minimum(b, inner, vec.vf32(80.0))  # as far as exp goes, and far enough
    return b.fdiv(x, b.fadd(vec.exp(b, inner), vec.vf32(1.0)))


def _clamped(b: Builder, x: Value) -> Value:
    """``x * sigmoid(1.702 * x)`` of x up to 7 (gpt-oss, 2025)."""
    x = vec.minimum(b, x, vec.vf32(7.0))
    return _times_sigmoid(b, x, b.fmul(x, vec.vf32(-1.702)))


def _clamped_up(b: Builder, x: Value) -> Value:
    """``x + 1`` of x between -7 and 7."""
    x = vec.maximum(b, vec.minimum(b, x, vec.vf32(7.0)), vec.vf32(-7.0))
    return b.fadd(x, vec.vf32(1.0))


def _gated_group(gate: _Function, change_up: _Function | None = None) -> Any:
    @intrinsic
    def gated_group(typingctx, x, up, out):  # type: ignore[no-untyped-def]
        """``out = gate(x) * up`` for 32 values, of ``change_up(up)`` where there is one."""

        def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
            x, up, out = args
            for part in (0, 64):
                value = gate(b, vec.load(b, x, VF32, part))
                factor = vec.load(b, up, VF32, part)
                factor = factor if change_up is None else change_up(b, factor)
                vec.store(b, b.fmul(value, factor), out, part)
            return context.get_dummy_value()

        return types.void(*([types.int64] * 3)), codegen

    return gated_group


GATES = {
    "silu": _gated_group(_silu),
    "gelu_tanh": _gated_group(_gelu_tanh),
    "clamped": _gated_group(_clamped, _clamped_up),
}


@cache
def gated_op(gate: Gate, gate_format: str, up_format: str, path: DotPath | None) -> Op:
    """``gate(x @ gate.T) * (x @ up.T)``, as float32, quantised, or both."""
    gate_product, gate_unpack = block_product(gate_format, path)
    up_product, up_unpack = block_product(up_format, path)
    begin_tiles, end_tiles = tile_session(path)
    block_scratch = unpacked_bytes(path, 1, 1)
    gated_group = GATES[gate]

    def gated(stage: int, step: int, counter: int, thread: int) -> None:
        num_units = load_i64(stage, NUM_BLOCKS) // 2
        task_units = load_i64(stage, TASK_UNITS)
        num_rows = load_i64(step, load_i64(stage, ROWS))
        gate_bytes, up_bytes = load_i64(stage, BLOCK_BYTES), load_i64(stage, UP_BLOCK_BYTES)
        local = load_i64(step, SCRATCH) + thread * load_i64(step, SCRATCH_BYTES)
        num_groups = load_i64(stage, NUM_GROUPS)
        plan = fetch_plan(stage, step, num_rows, num_groups)
        num_tiles = (num_rows + TILE_ROWS - 1) // TILE_ROWS
        space = local + 256 * TILE_ROWS
        unpacked_size = num_groups * block_scratch
        begin_tiles(num_rows)
        task = next_task(counter)
        while True:
            first, end_unit, begin, stop = task_piece(
                task, task_units, num_units, TASK_ROWS, num_rows
            )
            if first >= num_units:
                break
            task = next_task(counter)
            following = task_piece(task, task_units, num_units, TASK_ROWS, num_rows)[0]
            for unit in range(first, end_unit):
                gate_at = load_i64(stage, WEIGHT) + 2 * unit * gate_bytes
                up_at = load_i64(stage, UP_WEIGHT) + 2 * unit * up_bytes
                turn = unit + 1
                if turn == end_unit and following < num_units:
                    turn = following
                # From a unit's first half to its second, then to the next unit.
                steps = 1, 2 * (turn - unit) - 1
                unpacked = 0
                for half in range(2):
                    at = space + 2 * half * unpacked_size
                    gate_unpack(gate_at + half * gate_bytes, num_groups, stop - begin, at)
                    at = up_unpack(up_at + half * up_bytes, num_groups, stop - begin,
                                   at + unpacked_size)  # fmt: skip
                    if at != 0:
                        unpacked = space
                for m in range(begin, stop, TILE_ROWS):
                    end = min(m + TILE_ROWS, stop)
                    for half in range(2):
                        at = local + 64 * half
                        g, u = gate_at + half * gate_bytes, up_at + half * up_bytes
                        next_g, next_u = g + steps[half] * gate_bytes, u + steps[half] * up_bytes
                        tile = 4 * (unit * num_tiles + m // TILE_ROWS) + 2 * half
                        fetch, last_fetch = fetch_piece(stage, step, plan, tile)
                        bytes_at = unpacked
                        if unpacked != 0:
                            bytes_at += 2 * half * unpacked_size
                        gate_product(stage, g, next_g, m, end, at, 256, 0, 0,
                                     fetch, last_fetch, bytes_at)  # fmt: skip
                        fetch, last_fetch = fetch_piece(stage, step, plan, tile + 1)
                        if unpacked != 0:
                            bytes_at += unpacked_size
                        up_product(stage, u, next_u, m, end, at + 128, 256, 0, 0,
                                   fetch, last_fetch, bytes_at)  # fmt: skip
                    for row in range(m, end):
                        x = local + 256 * (row - m)
                        out = load_i64(stage, OUT)
                        if out == 0:
                            out = x
                        else:
                            out += row * load_i64(stage, OUT_STRIDE) + 128 * unit
                        gated_group(x, x + 128, out)
                        store_quantised(stage, out, row, unit, 1)
        end_tiles(num_rows)

    label = operation_label(f"{gate}_{gate_format}_{up_format}", path)
    return Op(f"gated_{label}", gated)


@intrinsic
def _rotate_vectors(typingctx, x, half, cosines, sines, num_vectors):  # type: ignore[no-untyped-def]
    """Rotates pairs (i, half + i) for the first ``16 * num_vectors`` of them, in place."""

    def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
        x, half, cosines, sines, num_vectors = args
        with cgutils.for_range(b, num_vectors) as loop:
            low, cos_at, sin_at = (vec.offset(b, at, loop.index, 64) for at in (x, cosines, sines))
            high = vec.offset(b, low, half, 4)
            p, q = vec.load(b, low, VF32), vec.load(b, high, VF32)
            c, s = vec.load(b, cos_at, VF32), vec.load(b, sin_at, VF32)
            vec.store(b, vec.fma(b, p, c, b.fneg(b.fmul(q, s))), low)
            vec.store(b, vec.fma(b, q, c, b.fmul(p, s)), high)
        return context.get_dummy_value()

    return types.void(*([types.int64] * 5)), codegen


@njit
def _rotate(x, cosines, sines, rope_dim):  # type: ignore[no-untyped-def]
    half = rope_dim // 2
    _rotate_vectors(x, half, cosines, sines, half // 16)
    for i in range(half // 16 * 16, half):
        p, q = load_f32(x, i), load_f32(x, half + i)
        c, s = load_f32(cosines, i), load_f32(sines, i)
        store_f32(x, i, p * c - q * s)
        store_f32(x, half + i, q * c + p * s)


@intrinsic
def _scale_row(typingctx, x, count, scale, out):  # type: ignore[no-untyped-def]
    def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
        x, count, scale, out = args
        factor = vec.splat(b, scale)
        with cgutils.for_range(b, b.udiv(count, i64(16))) as loop:
            value = vec.load(b, vec.offset(b, x, loop.index, 64), VF32)
            vec.store(b, b.fmul(value, factor), vec.offset(b, out, loop.index, 64))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.float32, types.int64), codegen


@njit
def finish_head(stage, step, x, row, head):  # type: ignore[no-untyped-def]
    """Norm, rotation and the final place of one row's head at ``x``."""
    head_dim = load_i64(stage, HEAD_DIM)
    kind = load_i64(stage, HEAD_KIND)
    if kind != VALUES:
        norm = load_i64(stage, HEAD_NORM)
        if norm != 0:
            norm += head * load_i64(stage, HEAD_NORM_STRIDE)
            epsilon = bits_to_f32(load_i64(stage, HEAD_EPSILON))
            normalise_row(x, norm, epsilon, x, head_dim, load_i64(stage, HEAD_CENTRED))
        rope_dim = load_i64(stage, ROPE_DIM)
        angles = load_i32(load_i64(step, POSITIONS), row) * rope_dim * 2
        cosines, sines = load_i64(stage, COSINES) + angles, load_i64(stage, SINES) + angles
        _rotate(x, cosines, sines, rope_dim)
    if kind == QUERIES:
        out = load_i64(stage, HEAD_OUT) + row * load_i64(stage, HEAD_OUT_STRIDE)
        scale = bits_to_f32(load_i64(stage, QUERY_SCALE))
        _scale_row(x, head_dim, scale, out + 4 * head * head_dim)
        return
    store_head(stage, step, x, row, head, kind == KEYS)


@cache
def heads_op(format_name: str, path: DotPath | None) -> Op:
    """Queries, keys or values of all heads.

    Queries are scaled and go to ``HEAD_OUT``; keys and values go to pages (see ``cpu_kv``).
    """
    product, unpack = block_product(format_name, path)
    begin_tiles, end_tiles = tile_session(path)
    block_scratch = unpacked_bytes(path, 1, 1)

    def heads(stage: int, step: int, counter: int, thread: int) -> None:
        head_dim = load_i64(stage, HEAD_DIM)
        head_blocks = head_dim // 16
        num_heads = load_i64(stage, NUM_BLOCKS) // head_blocks
        num_rows = load_i64(step, load_i64(stage, ROWS))
        block_bytes = load_i64(stage, BLOCK_BYTES)
        local = load_i64(step, SCRATCH) + thread * load_i64(step, SCRATCH_BYTES)
        bias = load_i64(stage, BIAS)
        num_groups = load_i64(stage, NUM_GROUPS)
        plan = fetch_plan(stage, step, num_rows, num_groups)
        num_tiles = (num_rows + TILE_ROWS - 1) // TILE_ROWS
        space = local + 4 * head_dim * TILE_ROWS
        unpacked_size = num_groups * block_scratch
        begin_tiles(num_rows)
        task = next_task(counter)
        while True:
            head, _, begin, stop = task_piece(task, 1, num_heads, _HEAD_ROWS, num_rows)
            if head >= num_heads:
                break
            task = next_task(counter)
            following = task_piece(task, 1, num_heads, _HEAD_ROWS, num_rows)[0]
            w = load_i64(stage, WEIGHT) + head * head_blocks * block_bytes
            unpacked = 0
            for block in range(head_blocks):
                at = space + block * unpacked_size
                if unpack(w + block * block_bytes, num_groups, stop - begin, at) != 0:
                    unpacked = space
            for m in range(begin, stop, TILE_ROWS):
                end = min(m + TILE_ROWS, stop)
                for block in range(head_blocks):
                    at = bias
                    if bias != 0:
                        at += (head * head_blocks + block) * 64
                    turn = block + 1
                    if turn == head_blocks and following < num_heads:
                        turn = (following - head) * head_blocks
                    tile = (head * num_tiles + m // TILE_ROWS) * head_blocks + block
                    fetch, last_fetch = fetch_piece(stage, step, plan, tile)
                    bytes_at = unpacked
                    if unpacked != 0:
                        bytes_at += block * unpacked_size
                    product(stage, w + block * block_bytes, w + turn * block_bytes, m, end,
                            local + 64 * block, 4 * head_dim, 0, at,
                            fetch, last_fetch, bytes_at)  # fmt: skip
                for row in range(m, end):
                    finish_head(stage, step, local + 4 * head_dim * (row - m), row, head)
        end_tiles(num_rows)

    return Op(f"heads_{operation_label(format_name, path)}", heads)

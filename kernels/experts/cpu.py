# ruff: noqa: ARG001 (numba calls operations with fixed arguments)
"""Products of experts with the rows that ``cpu_route`` sorted, and the sum of their results.

The blocks of all experts are one weight, one expert's after the other. A row's arithmetic is that
of any linear layer: it doesn't depend on the other rows of its expert.
"""

from __future__ import annotations

import math
from functools import cache

from numba import njit, types

from ramet.kernels.cpu_support.compiled_op import Op, op
from ramet.kernels.cpu_support.features import DotPath, vector_path
from ramet.kernels.cpu_support.memory import (
    load_f32,
    load_i32,
    load_i64,
    next_task,
    store_f32,
    store_i64,
)
from ramet.kernels.cpu_support.quantise import store_quantised
from ramet.kernels.cpu_support.step import SCRATCH, SCRATCH_BYTES
from ramet.kernels.experts.cpu_route import ITEM_WORDS, NUM_USED, PAIRS, SHARES
from ramet.kernels.linear.cpu import (
    BIAS,
    BLOCK_BYTES,
    NUM_BLOCKS,
    ROWS,
    TILE_ROWS,
    WEIGHT,
    Y_STRIDE,
    Y,
)
from ramet.kernels.linear.cpu_fused import (
    GATES,
    OUT,
    OUT_STRIDE,
    UP_BLOCK_BYTES,
    UP_WEIGHT,
    Gate,
)
from ramet.kernels.linear.cpu_product import block_product, operation_label
from ramet.kernels.norm.cpu import add_scaled_row

# NUM_BLOCKS is that of one expert. ITEMS, where it isn't among an operation's other operands:
ALL_ITEMS = 20
UP_BIAS = 21
TASK_BLOCKS = 19  # blocks, or units of two, a task

# Operands of ``gather_rows``: up to five arrays of rows, [source, target, stride in bytes].
COPIES = 18
NUM_COPIES = 5
COPY_WORDS = 3

# Operands of ``mix_rows``.
ROWS_AT, ROWS_STRIDE = 2, 3  # float32 results, sorted
WIDTH = 4
ADDED, ADDED_STRIDE = 6, 7  # float32 rows that take the sum
SHARED, SHARED_STRIDE = 8, 9  # float32 rows that are added, too; or 0
GATE, GATE_X, GATE_STRIDE = 10, 11, 13  # float32[WIDTH] or 0, and rows: shared rows are multiplied
# by the sigmoid of their product
REPLACES = 18  # 1: the sum is stored, not added


@op
def gather_rows(stage: int, step: int, counter: int, thread: int) -> None:
    """Copies each token's rows to where its pairs are."""
    num_used = load_i64(stage, NUM_USED)
    num_rows = load_i64(step, load_i64(stage, ROWS))
    while True:
        row = next_task(counter)
        if row >= num_rows:
            break
        for place in range(num_used):
            pair = load_i32(load_i64(stage, PAIRS), row * num_used + place)
            for copy in range(NUM_COPIES):
                source = load_i64(stage, COPIES + COPY_WORDS * copy)
                if source != 0:
                    stride = load_i64(stage, COPIES + COPY_WORDS * copy + 2)
                    target = load_i64(stage, COPIES + COPY_WORDS * copy + 1) + pair * stride
                    source += row * stride
                    for word in range(stride // 8):
                        store_i64(target, word, load_i64(source, word))
                    if stride % 8 != 0:
                        store_f32(target, stride // 4 - 1, load_f32(source, stride // 4 - 1))


@njit
def _item(items, task, num_chunks):  # type: ignore[no-untyped-def]
    """A task's expert, first row, end and number of the chunk of outputs; -1: there is none."""
    number = task // num_chunks
    if number >= load_i64(items, 0):
        return -1, 0, 0, 0
    at = 1 + ITEM_WORDS * number
    return load_i64(items, at), load_i64(items, at + 1), load_i64(items, at + 2), task % num_chunks


@cache
def expert_gated_op(gate: Gate, gate_format: str, up_format: str, path: DotPath | None) -> Op:
    """``gate(x @ gate.T) * (x @ up.T)`` of each row with its expert's weights."""
    # By vector instructions: an expert's rows are few, and don't begin where tiles do.
    gate_product, _ = block_product(gate_format, vector_path(path))
    up_product, _ = block_product(up_format, vector_path(path))
    gated_group = GATES[gate]

    def expert_gated(stage: int, step: int, counter: int, thread: int) -> None:
        num_units = load_i64(stage, NUM_BLOCKS) // 2
        size = load_i64(stage, TASK_BLOCKS)
        num_chunks = (num_units + size - 1) // size
        gate_bytes, up_bytes = load_i64(stage, BLOCK_BYTES), load_i64(stage, UP_BLOCK_BYTES)
        local = load_i64(step, SCRATCH) + thread * load_i64(step, SCRATCH_BYTES)
        items = load_i64(stage, ALL_ITEMS)
        while True:
            expert, begin, stop, chunk = _item(items, next_task(counter), num_chunks)
            if expert < 0:
                break
            for unit in range(chunk * size, min((chunk + 1) * size, num_units)):
                block = 2 * (expert * num_units + unit)
                for m in range(begin, stop, TILE_ROWS):
                    end = min(m + TILE_ROWS, stop)
                    for half in range(2):
                        at = local + 64 * half
                        g = load_i64(stage, WEIGHT) + (block + half) * gate_bytes
                        u = load_i64(stage, UP_WEIGHT) + (block + half) * up_bytes
                        bias, up_bias = load_i64(stage, BIAS), load_i64(stage, UP_BIAS)
                        if bias != 0:
                            bias += 64 * (block + half)
                            up_bias += 64 * (block + half)
                        gate_product(stage, g, g + gate_bytes, m, end, at, 256, 0, bias, 0, 0, 0)
                        up_product(stage, u, u + up_bytes, m, end, at + 128, 256, 0, up_bias,
                                   0, 0, 0)  # fmt: skip
                    for row in range(m, end):
                        x = local + 256 * (row - m)
                        out = load_i64(stage, OUT)
                        if out == 0:
                            out = x
                        else:
                            out += row * load_i64(stage, OUT_STRIDE) + 128 * unit
                        gated_group(x, x + 128, out)
                        store_quantised(stage, out, row, unit, 1)

    label = operation_label(f"{gate}_{gate_format}_{up_format}", path)
    return Op(f"expert_gated_{label}", expert_gated)


@cache
def expert_linear_op(format_name: str, path: DotPath | None) -> Op:
    """``x @ w.T + bias`` of each row with its expert's weight."""
    product, _ = block_product(format_name, vector_path(path))

    def expert_linear(stage: int, step: int, counter: int, thread: int) -> None:
        num_blocks = load_i64(stage, NUM_BLOCKS)
        size = load_i64(stage, TASK_BLOCKS)
        num_chunks = (num_blocks + size - 1) // size
        block_bytes, y_stride = load_i64(stage, BLOCK_BYTES), load_i64(stage, Y_STRIDE)
        items = load_i64(stage, ALL_ITEMS)
        while True:
            expert, begin, stop, chunk = _item(items, next_task(counter), num_chunks)
            if expert < 0:
                break
            for block in range(chunk * size, min((chunk + 1) * size, num_blocks)):
                at = expert * num_blocks + block
                w = load_i64(stage, WEIGHT) + at * block_bytes
                bias = load_i64(stage, BIAS)
                if bias != 0:
                    bias += 64 * at
                y = load_i64(stage, Y) + 64 * block
                for m in range(begin, stop, TILE_ROWS):
                    product(stage, w, w + block_bytes, m, min(m + TILE_ROWS, stop),
                            y + m * y_stride, y_stride, 0, bias, 0, 0, 0)  # fmt: skip

    return Op(f"expert_linear_{operation_label(format_name, path)}", expert_linear)


@njit
def _gate_value(gate, x, width):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(width):
        total += load_f32(gate, i) * load_f32(x, i)
    return types.float32(1.0 / (1.0 + math.exp(-total)))


@op
def mix_rows(stage: int, step: int, counter: int, thread: int) -> None:
    """Adds the weighted results of each token's experts, in the order of its places."""
    num_used, width = load_i64(stage, NUM_USED), load_i64(stage, WIDTH)
    num_rows = load_i64(step, load_i64(stage, ROWS))
    while True:
        row = next_task(counter)
        if row >= num_rows:
            break
        out = load_i64(stage, ADDED) + row * load_i64(stage, ADDED_STRIDE)
        if load_i64(stage, REPLACES) != 0:
            for i in range(width):
                store_f32(out, i, types.float32(0))
        for place in range(num_used):
            pair = load_i32(load_i64(stage, PAIRS), row * num_used + place)
            share = load_f32(load_i64(stage, SHARES), row * num_used + place)
            x = load_i64(stage, ROWS_AT) + pair * load_i64(stage, ROWS_STRIDE)
            add_scaled_row(x, width, share, out)
        shared = load_i64(stage, SHARED)
        if shared != 0:
            shared += row * load_i64(stage, SHARED_STRIDE)
            factor = types.float32(1)
            gate = load_i64(stage, GATE)
            if gate != 0:
                x = load_i64(stage, GATE_X) + row * load_i64(stage, GATE_STRIDE)
                factor = _gate_value(gate, x, width)
            add_scaled_row(shared, width, factor, out)

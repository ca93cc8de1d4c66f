# ruff: noqa: ARG001 (numba calls operations with fixed arguments)
"""Heads of float32 rows: norm, rotation, and the write of keys and values to their pages.

For projections that something comes between before their heads are known; the others are
``heads_op`` of ``cpu_fused``, whose operands from HEAD_KIND on these are, too.
"""

from __future__ import annotations

from ramet.kernels.cpu_support.compiled_op import op
from ramet.kernels.cpu_support.memory import load_f32, load_i64, next_task, store_f32
from ramet.kernels.cpu_support.quantise import store_quantised
from ramet.kernels.cpu_support.step import SCRATCH, SCRATCH_BYTES
from ramet.kernels.linear.cpu import ROWS
from ramet.kernels.linear.cpu_fused import finish_head
from ramet.kernels.linear.cpu_kv import HEAD_DIM

X, X_STRIDE = 2, 3  # float32 rows of heads, bytes between them
OWN_DIM, OWN_STRIDE = 4, 5  # values that a head has there; bytes from one head to the next
NUM_HEADS = 6
SHARED, SHARED_STRIDE, SHARED_DIM = (
    7,
    8,
    9,
)  # what all heads of a row begin with: rows, values; or 0
# Of ``pack_heads``; its result is also quantised if the operands of ``quantise`` ask for it.
OUT, OUT_STRIDE = 10, 11


@op
def place_heads(stage: int, step: int, counter: int, thread: int) -> None:
    """Finishes heads of what all of a row have, own values, and zeros up to HEAD_DIM."""
    num_rows = load_i64(step, load_i64(stage, ROWS))
    own, shared = load_i64(stage, OWN_DIM), load_i64(stage, SHARED_DIM)
    head_dim = load_i64(stage, HEAD_DIM)
    local = load_i64(step, SCRATCH) + thread * load_i64(step, SCRATCH_BYTES)
    while True:
        row = next_task(counter)
        if row >= num_rows:
            break
        common = load_i64(stage, SHARED) + row * load_i64(stage, SHARED_STRIDE)
        x = load_i64(stage, X) + row * load_i64(stage, X_STRIDE)
        for head in range(load_i64(stage, NUM_HEADS)):
            for i in range(shared):
                store_f32(local, i, load_f32(common, i))
            for i in range(own):
                store_f32(local, shared + i, load_f32(x, i))
            for i in range(shared + own, head_dim):
                store_f32(local, i, load_f32(x, 0) * 0)
            finish_head(stage, step, local, row, head)
            x += load_i64(stage, OWN_STRIDE)


@op
def pack_heads(stage: int, step: int, counter: int, thread: int) -> None:
    """Rows of the first OWN_DIM values of each head, one head after the other."""
    num_rows = load_i64(step, load_i64(stage, ROWS))
    own, num_heads = load_i64(stage, OWN_DIM), load_i64(stage, NUM_HEADS)
    while True:
        row = next_task(counter)
        if row >= num_rows:
            break
        out = load_i64(stage, OUT) + row * load_i64(stage, OUT_STRIDE)
        x = load_i64(stage, X) + row * load_i64(stage, X_STRIDE)
        for head in range(num_heads):
            for i in range(own):
                store_f32(out, head * own + i, load_f32(x, i))
            x += load_i64(stage, OWN_STRIDE)
        store_quantised(stage, out, row, 0, num_heads * own // 32)

# ruff: noqa: ARG001 (numba calls operations with fixed arguments)
"""Soft-capped logits (Gemma 2, 2024)."""

from __future__ import annotations

from ramet.kernels.attention.cpu_softmax import cap_row
from ramet.kernels.cpu_support.compiled_op import op
from ramet.kernels.cpu_support.memory import bits_to_f32, load_i64, next_task
from ramet.kernels.cpu_support.step import NUM_LOGITS

X, X_STRIDE = 2, 3  # float32 rows, bytes between them
NUM_VECTORS = 4  # of 16 values, a row
CAP = 5  # float64 bits


@op
def cap_rows(stage: int, step: int, counter: int, thread: int) -> None:
    """``cap * tanh(logit / cap)`` of all rows of X, in place."""
    num_rows = load_i64(step, NUM_LOGITS)
    while True:
        row = next_task(counter)
        if row >= num_rows:
            break
        x = load_i64(stage, X) + row * load_i64(stage, X_STRIDE)
        cap_row(x, load_i64(stage, NUM_VECTORS), bits_to_f32(load_i64(stage, CAP)))

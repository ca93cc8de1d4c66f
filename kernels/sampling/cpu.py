"""Token choice on a CPU; ``kernels.sampling`` says what each step means.

A greedy row without bias, penalties and log-probabilities costs one pass over its logits, or over
the words of its mask that allow anything. Other rows are copied once, with their mask applied; a
row that is drawn from is exponentiated once. Each row's arithmetic (``sampling_row_cpu``) is its
own, so a draw never depends on the batch.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from ramet.jit import jit, open_jit
from ramet.kernels.cpu_support.memory import next_task
from ramet.kernels.sampling.cpu_largest import first_largest
from ramet.kernels.sampling.cpu_row import (
    LOWEST,
    draw_all,
    draw_filtered,
    exp_row,
    masked_argmax,
    top_tokens,
    uniform_of,
)
from ramet.kernels.sampling.rows import Float32Array, SampledTokens, SampleResult, SamplingRows


@njit
def _copy(x, size, mask, work):  # type: ignore[no-untyped-def]
    """Copies a row with its mask (empty: none) applied; NaN and what follows ``size`` is -inf."""
    for i in range(size):
        work[i] = x[i] if x[i] >= LOWEST else LOWEST
    for i in range(size, len(work)):
        work[i] = LOWEST
    for word in range(min(len(mask), (size + 31) // 32)):
        bits = mask[word]
        if bits == -1:
            continue
        first = 32 * word
        for i in range(first, min(first + 32, size)):
            if not (bits >> (i - first)) & 1:
                work[i] = LOWEST


@open_jit(
    "void(float32[:,::1], float32[::1], float32[::1], int32[::1], float32[::1], float32[::1],"
    " float32[::1], float32[::1], uint64[::1], int64[::1], int32[::1], int32[:,::1], int32[::1],"
    " int32[::1], int32[::1], int32[::1], float32[::1], int32[::1], int32[::1], int32[::1],"
    " int64[::1], float32[:,::1], int32[::1], float32[::1], int32[:,::1], float32[:,::1])"
)
def _sample(logits, temperature, top_p, top_k, min_p, presence_penalty, frequency_penalty,  # type: ignore[no-untyped-def]
            repetition_penalty, seeds, positions, mask_rows, masks, num_logprobs, targets,
            bias_starts, bias_token_ids, bias_values, seen_starts, seen_token_ids,
            seen_output_counts, counter, work, token_ids, logprobs, top_token_ids,
            top_logprobs):  # fmt: skip
    """Takes rows from ``counter`` [1] until none are left; ``work`` float32[5, V, up to 16]."""
    size = logits.shape[1]
    padded = work.shape[1]
    x, p, some_x, some_p = work[0], work[1], work[2], work[3]
    ids = work[4].view(np.int32)
    none = np.empty(0, np.int32)
    while True:
        row = next_task(counter.ctypes.data)
        if row >= len(logits):
            break
        token_ids[row], logprobs[row] = -1, np.nan
        top_token_ids[row], top_logprobs[row] = -1, LOWEST
        bias_first, bias_end = bias_starts[row], bias_starts[row + 1]
        seen_first, seen_end = seen_starts[row], seen_starts[row + 1]
        target = targets[row]
        wants = num_logprobs[row]
        masked = mask_rows[row] >= 0
        mask = masks[mask_rows[row]] if masked else none
        plain = bias_first == bias_end and seen_first == seen_end
        if target >= 0 and wants < 0:
            token_ids[row] = target
            continue
        if plain and wants < 0 and temperature[row] == 0:
            if masked:
                token_ids[row] = masked_argmax(logits[row], size, mask)
            else:
                token_ids[row] = first_largest(logits[row].ctypes.data, size)
            continue

        _copy(logits[row], size, mask, x)
        for entry in range(bias_first, bias_end):
            x[bias_token_ids[entry]] += bias_values[entry]
        for entry in range(seen_first, seen_end):
            token, count = seen_token_ids[entry], np.float32(seen_output_counts[entry])
            value = x[token]
            if value > 0:
                value /= repetition_penalty[row]
            else:
                value *= repetition_penalty[row]
            value -= frequency_penalty[row] * count
            if count > 0:
                value -= presence_penalty[row]
            x[token] = value
        likeliest = first_largest(x.ctypes.data, size)
        if likeliest < 0:
            if target >= 0:
                token_ids[row] = target
            if wants >= 0:
                logprobs[row] = LOWEST
            continue
        largest = x[likeliest]

        if target >= 0:
            token = target
        elif temperature[row] == 0:
            token = likeliest
        else:
            total = exp_row(x.ctypes.data, largest, temperature[row], p.ctypes.data, padded)
            uniform = uniform_of(seeds[row], positions[row])
            if top_k[row] > 0 or top_p[row] < 1 or min_p[row] > 0:
                token = draw_filtered(x, p, size, total, uniform, top_k[row], top_p[row],
                                       min_p[row], ids, some_x, some_p)  # fmt: skip
            else:
                token = draw_all(p, size, total, uniform)
        token_ids[row] = token

        if wants >= 0:
            total = exp_row(x.ctypes.data, largest, np.float32(1), p.ctypes.data, padded)
            shift = np.float64(largest) + math.log(total)
            logprobs[row] = np.float32(np.float64(x[token]) - shift)
            if wants > 0:
                top_tokens(x, size, shift, top_token_ids[row], top_logprobs[row], wants)


@jit("void(float32[:,::1], int64, int32[::1], int32[:,::1], int32[::1])")
def keep_to_masks(logits, size, mask_rows, masks, token_ids):  # type: ignore[no-untyped-def]
    """Puts the likeliest token that its mask allows in place of each row's likeliest of all.

    Most are the same: then a row costs no look at its logits. ``token_ids`` [S] has each row's
    ``first_largest``; ``logits`` are [S or more, ``size`` or more]; masks are as ``SampleTask``'s.
    """
    for row in range(len(token_ids)):
        token = token_ids[row]
        if mask_rows[row] < 0 or token < 0:
            continue
        mask = masks[mask_rows[row]]
        if not (mask[token >> 5] >> (token & 31)) & 1:
            token_ids[row] = masked_argmax(logits[row], size, mask)


class SampleTask:
    """``sampling.sample_reference`` in float32, on float32 ``logits`` [S, V] whose rows are
    contiguous. Any number of threads may ``run`` it together, each with its own scratch."""

    def __init__(self, logits: Float32Array, rows: SamplingRows) -> None:
        num_rows = len(logits)
        num_top = max(0, int(rows.num_logprobs.max(initial=0)))
        self.result: SampledTokens = SampleResult(
            np.empty(num_rows, np.int32),
            np.empty(num_rows, np.float32),
            np.empty((num_rows, num_top), np.int32),
            np.empty((num_rows, num_top), np.float32),
        )
        self._arguments = (
            logits,
            rows.temperature,
            rows.top_p,
            rows.top_k,
            rows.min_p,
            rows.presence_penalty,
            rows.frequency_penalty,
            rows.repetition_penalty,
            rows.seeds,
            rows.positions,
            rows.mask_rows,
            rows.masks,
            rows.num_logprobs,
            rows.targets,
            rows.bias_starts,
            rows.bias_token_ids,
            rows.bias_values,
            rows.seen_starts,
            rows.seen_token_ids,
            rows.seen_output_counts,
            np.zeros(1, np.int64),
        )

    def run(self, work: Float32Array) -> None:
        """Works on rows until none are left; ``work`` is from ``work_space``."""
        _sample(*self._arguments, work, *self.result)


def sample(logits: Float32Array, rows: SamplingRows) -> SampledTokens:
    """Chooses a token for each row of ``logits`` on this thread."""
    task = SampleTask(logits, rows)
    task.run(work_space(logits.shape[1]))
    return task.result


def work_space(vocab_size: int) -> Float32Array:
    """One thread's scratch."""
    return np.empty((5, -(-vocab_size // 16) * 16), np.float32)

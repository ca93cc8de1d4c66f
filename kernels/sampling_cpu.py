# ruff: noqa: ARG001 (numba calls intrinsics with a typing context)
"""Token choice on a CPU; ``kernels.sampling`` says what each step means.

A greedy row without bias, penalties and log-probabilities costs one pass over its logits, or over
the words of its mask that allow anything. Other rows are copied once, with their mask applied; a
row that is drawn from is exponentiated once. Filters look at candidates: tokens within a factor of
the likeliest, and all of them only if those don't suffice. Thresholds are found by partitioning,
not by sorting. Each row's arithmetic is its own, so a draw never depends on the batch.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from ramet.compiled import open_jit
from ramet.kernels.cpu import ir as vec
from ramet.kernels.cpu.ir import VF32, Variable, i64
from ramet.kernels.cpu.largest import first_equal, first_largest
from ramet.kernels.cpu.memory import next_task
from ramet.kernels.sampling import (
    Float32Array,
    Int32Array,
    Int64Array,
    SampleResult,
    UInt64Array,
)

_BLOCK = 64
_LOWEST = np.float32(-np.inf)
_NEAR = np.float32(1 / 1024)  # candidates are at first at least this likely, times the likeliest


@intrinsic
def _exp_row(typingctx, x, shift, temperature, out, count):  # type: ignore[no-untyped-def]
    """``out = exp((x - shift) / temperature)``, ``count`` a multiple of 16; their sum as float64.

    The sum of each 16 lanes is float32 over 1,024 values, then float64.
    """

    def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
        x, shift, temperature, out, count = args
        shifts, temperatures = vec.splat(b, shift), vec.splat(b, temperature)
        total = Variable(b, vec.f64(0.0))
        with cgutils.for_range(b, b.udiv(b.add(count, i64(1023)), i64(1024))) as outer:
            first = b.mul(outer.index, i64(1024))
            left = b.sub(count, first)
            size = b.select(b.icmp_unsigned("<", left, i64(1024)), left, i64(1024))
            part = Variable(b, vec.vf32(0.0))
            base, target = vec.offset(b, x, first, 4), vec.offset(b, out, first, 4)
            with cgutils.for_range(b, b.udiv(size, i64(16))) as loop:
                value = vec.load(b, vec.offset(b, base, loop.index, 64), VF32)
                value = vec.exp(b, b.fdiv(b.fsub(value, shifts), temperatures))
                vec.store(b, value, vec.offset(b, target, loop.index, 64))
                part.set(b.fadd(part.get(), value))
            summed = b.fpext(vec.fold(b, part.get(), vec.fadd), vec.F64)
            total.set(b.fadd(total.get(), summed))
        return total.get()

    kinds = (types.int64, types.float32, types.float32, types.int64, types.int64)
    return types.float64(*kinds), codegen


@njit
def _uniform(seed, position):  # type: ignore[no-untyped-def]
    """``sampling.uniforms`` for one row."""
    low = np.uint64(0xFFFFFFFF)
    bits = np.uint64(32)
    counter = np.uint64(position)
    c0, c1 = counter & low, counter >> bits
    c2, c3 = np.uint64(0), np.uint64(0)
    k0, k1 = np.uint64(seed) & low, np.uint64(seed) >> bits
    for _ in range(10):
        product0, product1 = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (
            (product1 >> bits) ^ c1 ^ k0,
            product1 & low,
            (product0 >> bits) ^ c3 ^ k1,
            product0 & low,
        )
        k0 = (k0 + np.uint64(0x9E3779B9)) & low
        k1 = (k1 + np.uint64(0xBB67AE85)) & low
    word = (c0 << np.uint64(20)) | (c1 >> np.uint64(12))
    return (np.float64(word) + 0.5) * 2.0**-52


@njit
def _masked_argmax(x, size, mask):  # type: ignore[no-untyped-def]
    best, at = _LOWEST, -1
    for word in range((size + 31) // 32):
        bits = mask[word]
        if bits == 0:
            continue
        first = 32 * word
        if bits == -1 and first + 32 <= size:
            largest = _LOWEST
            for i in range(first, first + 32):
                largest = x[i] if x[i] > largest else largest
            if largest > best:
                best, at = largest, first_equal(x.ctypes.data, first, first + 32, largest)
            continue
        for i in range(first, min(first + 32, size)):
            if (bits >> (i - first)) & 1 and x[i] > best:
                best, at = x[i], i
    return at


@njit
def _copy(x, size, mask, work):  # type: ignore[no-untyped-def]
    """Copies a row with its mask (empty: none) applied; NaN and what follows ``size`` is -inf."""
    for i in range(size):
        work[i] = x[i] if x[i] >= _LOWEST else _LOWEST
    for i in range(size, len(work)):
        work[i] = _LOWEST
    for word in range(min(len(mask), (size + 31) // 32)):
        bits = mask[word]
        if bits == -1:
            continue
        first = 32 * word
        for i in range(first, min(first + 32, size)):
            if not (bits >> (i - first)) & 1:
                work[i] = _LOWEST


@njit
def _threshold(x, p, size, goal, by_mass):  # type: ignore[no-untyped-def]
    """The largest of ``x[:size]`` such that all at least as large reach ``goal`` together: in sum
    of ``p``, or in number. Partitions both arrays in place."""
    low, high = 0, size
    above = 0.0
    while high - low > 1:
        a, b, c = x[low], x[(low + high) // 2], x[high - 1]
        pivot = max(min(a, b), min(max(a, b), c))
        # [low, i): larger; [i, j): equal; [k, high): smaller
        i, j, k = low, low, high
        larger, equal = 0.0, 0.0
        while j < k:
            weight = np.float64(p[j]) if by_mass else 1.0
            if x[j] > pivot:
                larger += weight
                x[i], x[j] = x[j], x[i]
                p[i], p[j] = p[j], p[i]
                i += 1
                j += 1
            elif x[j] == pivot:
                equal += weight
                j += 1
            else:
                k -= 1
                x[k], x[j] = x[j], x[k]
                p[k], p[j] = p[j], p[k]
        if above + larger >= goal:
            high = i
        elif above + larger + equal >= goal or k == high:
            return pivot
        else:
            above += larger + equal
            low = k
    return x[low]


@njit
def _gather(p, size, least, ids):  # type: ignore[no-untyped-def]
    """Ids with a positive ``p`` of at least ``least``, ascending; their number and sum."""
    count, total = 0, 0.0
    for first in range(0, size, _BLOCK):
        end = min(first + _BLOCK, size)
        largest = np.float32(0)
        for i in range(first, end):
            largest = max(largest, p[i])
        if largest < least or largest == 0:
            continue
        for i in range(first, end):
            if p[i] >= least and p[i] > 0:
                ids[count] = i
                count += 1
                total += np.float64(p[i])
    return count, total


@njit
def _draw_all(p, size, total, uniform):  # type: ignore[no-untyped-def]
    """The first token where the running sum of ``p`` passes ``uniform * total``."""
    goal = uniform * total
    running, last = 0.0, 0
    for first in range(0, size, _BLOCK):
        end = min(first + _BLOCK, size)
        part = np.float32(0)
        for i in range(first, end):
            part += p[i]
        if running + np.float64(part) > goal:
            for i in range(first, end):
                running += np.float64(p[i])
                if p[i] > 0:
                    last = i
                    if running > goal:
                        return i
        else:
            running += np.float64(part)
            if part > 0:
                last = end - 1
    while p[last] == 0 and last > 0:
        last -= 1
    return last


@njit
def _draw_filtered(x, p, size, total, uniform, top_k, top_p, min_p, ids, some_x, some_p):  # type: ignore[no-untyped-def]
    """A draw from what the filters keep of ``p``, whose sum is ``total``."""
    count, mass = _gather(p, size, _NEAR, ids)
    if top_k > 0:
        enough = count >= top_k
    elif top_p < 1:
        enough = mass >= top_p * total
    else:
        enough = min_p >= _NEAR
    if not enough:
        count, mass = _gather(p, size, np.float32(0), ids)
    limit = _LOWEST
    if 0 < top_k < count:
        for i in range(count):
            some_x[i], some_p[i] = x[ids[i]], p[ids[i]]
        limit = _threshold(some_x, some_p, count, np.float64(top_k), False)
    if top_p < 1:
        number, kept = 0, 0.0
        for i in range(count):
            if x[ids[i]] >= limit:
                some_x[number], some_p[number] = x[ids[i]], p[ids[i]]
                kept += np.float64(some_p[number])
                number += 1
        if top_k <= 0:
            kept = total
        limit = max(limit, _threshold(some_x, some_p, number, np.float64(top_p) * kept, True))
    number, mass = 0, 0.0
    for i in range(count):
        if x[ids[i]] >= limit and p[ids[i]] >= min_p:
            ids[number] = ids[i]
            number += 1
            mass += np.float64(p[ids[i]])
    goal, running = uniform * mass, 0.0
    for i in range(number):
        running += np.float64(p[ids[i]])
        if running > goal:
            return ids[i]
    return ids[number - 1]


@njit
def _top(x, size, shift, out_ids, out_logprobs, wanted):  # type: ignore[no-untyped-def]
    """The ``wanted`` largest of ``x``, the lower id first among equals."""
    count = 0
    for first in range(0, size, _BLOCK):
        end = min(first + _BLOCK, size)
        largest = _LOWEST
        for i in range(first, end):
            largest = max(largest, x[i])
        if count == wanted and largest <= out_logprobs[count - 1]:
            continue
        for i in range(first, end):
            value = x[i]
            if value == _LOWEST or (count == wanted and value <= out_logprobs[count - 1]):
                continue
            at = count if count < wanted else count - 1
            while at > 0 and out_logprobs[at - 1] < value:
                out_logprobs[at], out_ids[at] = out_logprobs[at - 1], out_ids[at - 1]
                at -= 1
            out_logprobs[at], out_ids[at] = value, i
            count = min(count + 1, wanted)
    for i in range(count):
        out_logprobs[i] = np.float32(np.float64(out_logprobs[i]) - shift)


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
        top_token_ids[row], top_logprobs[row] = -1, _LOWEST
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
                token_ids[row] = _masked_argmax(logits[row], size, mask)
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
                logprobs[row] = _LOWEST
            continue
        largest = x[likeliest]

        if target >= 0:
            token = target
        elif temperature[row] == 0:
            token = likeliest
        else:
            total = _exp_row(x.ctypes.data, largest, temperature[row], p.ctypes.data, padded)
            uniform = _uniform(seeds[row], positions[row])
            if top_k[row] > 0 or top_p[row] < 1 or min_p[row] > 0:
                token = _draw_filtered(x, p, size, total, uniform, top_k[row], top_p[row],
                                       min_p[row], ids, some_x, some_p)  # fmt: skip
            else:
                token = _draw_all(p, size, total, uniform)
        token_ids[row] = token

        if wants >= 0:
            total = _exp_row(x.ctypes.data, largest, np.float32(1), p.ctypes.data, padded)
            shift = np.float64(largest) + math.log(total)
            logprobs[row] = np.float32(np.float64(x[token]) - shift)
            if wants > 0:
                _top(x, size, shift, top_token_ids[row], top_logprobs[row], wants)


class SampleTask:
    """``sampling.sample_reference`` in float32, on float32 ``logits`` [S, V] whose rows are
    contiguous. Any number of threads may ``run`` it together, each with its own scratch."""

    def __init__(
        self,
        logits: Float32Array,
        *,
        temperature: Float32Array,
        top_p: Float32Array,
        top_k: Int32Array,
        min_p: Float32Array,
        presence_penalty: Float32Array,
        frequency_penalty: Float32Array,
        repetition_penalty: Float32Array,
        seeds: UInt64Array,
        positions: Int64Array,
        mask_rows: Int32Array,
        masks: Int32Array,
        num_logprobs: Int32Array,
        bias_starts: Int32Array,
        bias_token_ids: Int32Array,
        bias_values: Float32Array,
        seen_starts: Int32Array,
        seen_token_ids: Int32Array,
        seen_output_counts: Int32Array,
        targets: Int32Array | None = None,
    ) -> None:
        num_rows = len(logits)
        num_top = max(0, int(num_logprobs.max(initial=0)))
        if targets is None:
            targets = np.full(num_rows, -1, np.int32)
        self.result = SampleResult(
            np.empty(num_rows, np.int32),
            np.empty(num_rows, np.float32),
            np.empty((num_rows, num_top), np.int32),
            np.empty((num_rows, num_top), np.float32),
        )
        self._arguments = (logits, temperature, top_p, top_k, min_p, presence_penalty,
                           frequency_penalty, repetition_penalty, seeds, positions, mask_rows,
                           masks, num_logprobs, targets, bias_starts, bias_token_ids, bias_values,
                           seen_starts, seen_token_ids, seen_output_counts,
                           np.zeros(1, np.int64))  # fmt: skip

    def run(self, work: Float32Array) -> None:
        """Works on rows until none are left; ``work`` is from ``work_space``."""
        _sample(*self._arguments, work, *self.result)


def sample(logits: Float32Array, **rows: Any) -> SampleResult:
    """Chooses a token for each row of ``logits`` on this thread; ``rows`` as ``SampleTask``'s."""
    task = SampleTask(logits, **rows)
    task.run(work_space(logits.shape[1]))
    return task.result


def work_space(vocab_size: int) -> Float32Array:
    """One thread's scratch."""
    return np.empty((5, -(-vocab_size // 16) * 16), np.float32)

# ruff: noqa: ARG001 (numba calls intrinsics with a typing context)
"""The parts of choosing one row's token: largest values, filters, a draw.

Filters look at candidates: tokens within a factor of the likeliest, and all of them only if those
don't suffice. Thresholds are found by partitioning, not by sorting.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from ramet.kernels.cpu_support import ir as vec
from ramet.kernels.cpu_support.ir import VF32, Variable, i64
from ramet.kernels.sampling.cpu_largest import first_equal

LOWEST = np.float32(-np.inf)
_BLOCK = 64
_NEAR = np.float32(1 / 1024)  # candidates are at first at least this likely, times the likeliest


@intrinsic
def exp_row(typingctx, x, shift, temperature, out, count):  # type: ignore[no-untyped-def]
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
def uniform_of(seed, position):  # type: ignore[no-untyped-def]
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
def masked_argmax(x, size, mask):  # type: ignore[no-untyped-def]
    best, at = LOWEST, -1
    for word in range((size + 31) // 32):
        bits = mask[word]
        if bits == 0:
            continue
        first = 32 * word
        if bits == -1 and first + 32 <= size:
            largest = LOWEST
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
def draw_all(p, size, total, uniform):  # type: ignore[no-untyped-def]
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
def draw_filtered(x, p, size, total, uniform, top_k, top_p, min_p, ids, some_x, some_p):  # type: ignore[no-untyped-def]
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
    limit = LOWEST
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
def top_tokens(x, size, shift, out_ids, out_logprobs, wanted):  # type: ignore[no-untyped-def]
    """The ``wanted`` largest of ``x``, the lower id first among equals."""
    count = 0
    for first in range(0, size, _BLOCK):
        end = min(first + _BLOCK, size)
        largest = LOWEST
        for i in range(first, end):
            largest = max(largest, x[i])
        if count == wanted and largest <= out_logprobs[count - 1]:
            continue
        for i in range(first, end):
            value = x[i]
            if value == LOWEST or (count == wanted and value <= out_logprobs[count - 1]):
                continue
            at = count if count < wanted else count - 1
            while at > 0 and out_logprobs[at - 1] < value:
                out_logprobs[at], out_ids[at] = out_logprobs[at - 1], out_ids[at - 1]
                at -= 1
            out_logprobs[at], out_ids[at] = value, i
            count = min(count + 1, wanted)
    for i in range(count):
        out_logprobs[i] = np.float32(np.float64(out_logprobs[i]) - shift)

"""Routing of tokens to experts, and the order of rows by expert."""

from __future__ import annotations

import math

from numba import njit, types

from ramet.kernels.cpu_support.compiled_op import op
from ramet.kernels.cpu_support.memory import (
    bits_to_f32,
    load_f32,
    load_i32,
    load_i64,
    next_task,
    store_f32,
    store_i32,
    store_i64,
)
from ramet.kernels.cpu_support.step import SCRATCH, SCRATCH_BYTES
from ramet.kernels.linear.cpu import ROWS, TASK_ROWS

# Operands; ROWS is that of linear layers. A token has NUM_USED places, one an expert.
LOGITS, LOGITS_STRIDE = 2, 3  # float32 rows, which become scores; bytes between them
NUM_EXPERTS, NUM_USED = 4, 5
SELECTION_BIAS = 6  # float32[experts], added where experts are chosen; or 0
SIGMOID, NORMALISED, SHARE_SCALE = 7, 8, 9  # flags; float64 bits
NUM_GROUPS, NUM_GROUPS_USED, GROUP_TOP = 10, 11, 13
CHOSEN, SHARES = 14, 15  # int32[tokens, places], float32 likewise
PAIRS = 16  # int32[tokens, places]: the row of each among those sorted by expert
ITEMS = 17  # int64: their number, then expert, first row and end of each: rows of one expert

ITEM_WORDS = 3
_LOWEST = -3e38


def max_items(num_pairs: int, num_experts: int) -> int:
    """Most items that so many rows make."""
    return num_pairs // TASK_ROWS + min(num_experts, num_pairs)


def scratch_bytes(num_experts: int) -> int:
    """Bytes of one thread's scratch that ``route_rows`` needs."""
    return 8 * num_experts


@njit
def _take_largest(x, first, end):  # type: ignore[no-untyped-def]
    """The index of the first largest value, which it makes the lowest; and the value."""
    at, best = first, load_f32(x, first)
    for i in range(first + 1, end):
        if load_f32(x, i) > best:
            at, best = i, load_f32(x, i)
    store_f32(x, at, types.float32(_LOWEST))
    return at, best


@njit
def _score(x, num, sigmoid):  # type: ignore[no-untyped-def]
    """Scores in place of logits."""
    largest = load_f32(x, 0)
    for i in range(1, num):
        largest = max(largest, load_f32(x, i))
    total = 0.0
    for i in range(num):
        if sigmoid != 0:
            value = 1.0 / (1.0 + math.exp(-types.float64(load_f32(x, i))))
        else:
            value = math.exp(types.float64(load_f32(x, i)) - largest)
            total += value
        store_f32(x, i, types.float32(value))
    if sigmoid == 0:
        for i in range(num):
            store_f32(x, i, types.float32(load_f32(x, i) / total))


@njit
def _hide_groups(stage, ranked, copy, num):  # type: ignore[no-untyped-def]
    """Makes the ranks of all but the best groups the lowest; ``copy`` is scratch."""
    num_groups, num_used = load_i64(stage, NUM_GROUPS), load_i64(stage, NUM_GROUPS_USED)
    size = num // num_groups
    for i in range(num):
        store_f32(copy, i, load_f32(ranked, i))
    for group in range(num_groups):
        total = types.float32(0)
        for _ in range(load_i64(stage, GROUP_TOP)):
            total += _take_largest(copy, group * size, (group + 1) * size)[1]
        store_f32(copy, group * size, total)  # its first value is not needed any more
    for group in range(num_groups):
        better = 0
        own = load_f32(copy, group * size)
        for other in range(num_groups):
            score = load_f32(copy, other * size)
            if score > own or (score == own and other < group):
                better += 1
        if better >= num_used:
            for i in range(group * size, (group + 1) * size):
                store_f32(ranked, i, types.float32(_LOWEST))


@op
def route_rows(stage: int, step: int, counter: int, thread: int) -> None:
    """Chooses each row's experts and their weights."""
    num_rows = load_i64(step, load_i64(stage, ROWS))
    num, num_used = load_i64(stage, NUM_EXPERTS), load_i64(stage, NUM_USED)
    bias = load_i64(stage, SELECTION_BIAS)
    ranked = load_i64(step, SCRATCH) + thread * load_i64(step, SCRATCH_BYTES)
    scale = bits_to_f32(load_i64(stage, SHARE_SCALE))
    while True:
        row = next_task(counter)
        if row >= num_rows:
            break
        x = load_i64(stage, LOGITS) + row * load_i64(stage, LOGITS_STRIDE)
        _score(x, num, load_i64(stage, SIGMOID))
        for i in range(num):
            rank = load_f32(x, i)
            if bias != 0:
                rank += load_f32(bias, i)
            store_f32(ranked, i, rank)
        if load_i64(stage, NUM_GROUPS) > 1:
            _hide_groups(stage, ranked, ranked + 4 * num, num)
        total = types.float32(0)
        for place in range(num_used):
            expert = _take_largest(ranked, 0, num)[0]
            store_i32(load_i64(stage, CHOSEN), row * num_used + place, expert)
            total += load_f32(x, expert)
        factor = scale
        if load_i64(stage, NORMALISED) != 0:
            factor = scale / (total + types.float32(1e-20))
        for place in range(num_used):
            expert = load_i32(load_i64(stage, CHOSEN), row * num_used + place)
            share = load_f32(x, expert) * factor
            store_f32(load_i64(stage, SHARES), row * num_used + place, share)


@op
def sort_rows(stage: int, step: int, counter: int, thread: int) -> None:
    """Numbers the rows by expert, in order, and cuts them into items. One thread does it."""
    if next_task(counter) != 0:
        return
    num = load_i64(stage, NUM_EXPERTS)
    num_pairs = load_i64(step, load_i64(stage, ROWS)) * load_i64(stage, NUM_USED)
    chosen, pairs = load_i64(stage, CHOSEN), load_i64(stage, PAIRS)
    items = load_i64(stage, ITEMS)
    starts = load_i64(step, SCRATCH) + thread * load_i64(step, SCRATCH_BYTES)
    for expert in range(num):
        store_i32(starts, expert, 0)
    for pair in range(num_pairs):
        expert = load_i32(chosen, pair)
        store_i32(starts, expert, load_i32(starts, expert) + 1)
    start, count = 0, 0
    for expert in range(num):
        end = start + load_i32(starts, expert)
        store_i32(starts, expert, start)
        for first in range(start, end, TASK_ROWS):
            store_i64(items, 1 + ITEM_WORDS * count, expert)
            store_i64(items, 2 + ITEM_WORDS * count, first)
            store_i64(items, 3 + ITEM_WORDS * count, min(first + TASK_ROWS, end))
            count += 1
        start = end
    store_i64(items, 0, count)
    for pair in range(num_pairs):
        expert = load_i32(chosen, pair)
        row = load_i32(starts, expert)
        store_i32(pairs, pair, row)
        store_i32(starts, expert, row + 1)

"""Products of two automata, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from ramet.jit import jit

from .tables import BOOLS, INT, INT64S, OK, TABLE, TOO_MANY_STATES, Array, grown_1d, grown_2d


@jit("int64(int64)")
def _hash(key: Any) -> Any:
    # Unsigned, since compiled code takes for granted that signed products don't overflow.
    return np.int64((np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(17))


@jit(
    (TABLE, BOOLS, INT, TABLE, BOOLS, INT, INT64S, INT64S, INT, INT),
)
def product(
    table_a: Array,
    accept_a: Array,
    start_a: int,
    table_b: Array,
    accept_b: Array,
    start_b: int,
    classes_a: Array,
    classes_b: Array,
    truth: int,
    max_states: int,
) -> tuple[int, Array, Array, Array]:
    """The reachable product of two automata on joint classes.

    Joint class j is class ``classes_a[j]`` of a and ``classes_b[j]`` of b. Bit 2 * x + y of
    ``truth`` says whether a pair accepts whose parts accept as x and y.

    Returns:
        status, table, accepting, pairs: int32[num_states, 2], the states of a and b that each
        state stands for, -1 for none. State 0 is the start.
    """
    num_classes = classes_a.shape[0]
    num_b = table_b.shape[0] + 1
    only_a = (truth >> 2) & 1
    only_b = (truth >> 1) & 1
    slots = np.full(256, -1, np.int32)
    keys = np.empty(64, np.int64)
    table = np.empty((64, num_classes), np.int32)
    accepting = np.zeros(64, np.bool_)
    pairs = np.empty((0, 2), np.int32)
    num_states = 0
    current = -1
    while current < num_states:
        own_a, own_b = -1, -1
        if current >= 0:
            own_a, own_b = keys[current] // num_b - 1, keys[current] % num_b - 1
        for j in range(num_classes if current >= 0 else 1):
            if current < 0:
                a, b = start_a, start_b
            else:
                a, b = -1, -1
                if own_a >= 0:
                    a = table_a[own_a, classes_a[j]]
                if own_b >= 0:
                    b = table_b[own_b, classes_b[j]]
                if (a < 0 and (b < 0 or not only_b)) or (b < 0 and not only_a):
                    table[current, j] = -1
                    continue
            key = np.int64(a + 1) * num_b + b + 1
            mask = slots.shape[0] - 1
            slot = _hash(key) & mask
            while slots[slot] >= 0 and keys[slots[slot]] != key:
                slot = (slot + 1) & mask
            found = slots[slot]
            if found < 0:
                if num_states >= max_states:
                    return TOO_MANY_STATES, table[:0], accepting[:0], pairs[:0]
                found = num_states
                if found + 1 > table.shape[0]:
                    table = grown_2d(table, found + 1)
                    accepting = grown_1d(accepting, found + 1)
                    keys = grown_1d(keys, found + 1)
                keys[found] = key
                x = 1 if a >= 0 and accept_a[a] else 0
                y = 1 if b >= 0 and accept_b[b] else 0
                accepting[found] = (truth >> (2 * x + y)) & 1 == 1
                slots[slot] = found
                num_states += 1
                if num_states * 2 > slots.shape[0]:
                    slots = np.full(slots.shape[0] * 4, -1, np.int32)
                    mask = slots.shape[0] - 1
                    for s in range(num_states):
                        place = _hash(keys[s]) & mask
                        while slots[place] >= 0:
                            place = (place + 1) & mask
                        slots[place] = s
            if current >= 0:
                table[current, j] = found
        current += 1
    pairs = np.empty((num_states, 2), np.int32)
    for s in range(num_states):
        pairs[s, 0] = keys[s] // num_b - 1
        pairs[s, 1] = keys[s] % num_b - 1
    return OK, table[:num_states].copy(), accepting[:num_states].copy(), pairs

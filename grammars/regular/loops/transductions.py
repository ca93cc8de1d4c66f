"""Languages read through a transducer, compiled."""

from __future__ import annotations

import numpy as np
from numba import njit

from ramet.jit import jit

from .tables import (
    BOOLS,
    INT,
    INT64S,
    OK,
    TABLE,
    TABLE_64,
    TOO_MANY_STATES,
    Array,
    grown_1d,
    grown_2d,
)


@njit
def _reached_modes(
    table: Array, modes: Array, outputs: Array, live: Array, live_start: Array, classes: Array
) -> tuple[Array, Array]:
    """The pairs (state, mode) that texts lead to.

    Returns:
        bool[num_states, num_modes], and the states reached in mode 0 in the order of arrival.
    """
    num_modes = modes.shape[0]
    known = np.zeros((table.shape[0], num_modes), np.bool_)
    borders = np.empty(table.shape[0], np.int32)
    stack = np.empty(64, np.int64)
    borders[0] = 0
    known[0, 0] = True
    num_borders = 1
    at = 0
    while at < num_borders:
        # Down from one border to the next ones.
        stack[0] = np.int64(borders[at]) * num_modes
        depth = 1
        at += 1
        while depth > 0:
            depth -= 1
            state, mode = stack[depth] // num_modes, stack[depth] % num_modes
            for i in range(live_start[mode], live_start[mode + 1]):
                j = live[i]
                target = np.int32(state)
                if outputs[mode, j] >= 0:
                    target = table[state, classes[outputs[mode, j]]]
                next_mode = modes[mode, j]
                if target < 0 or known[target, next_mode]:
                    continue
                known[target, next_mode] = True
                if next_mode == 0:
                    borders[num_borders] = target
                    num_borders += 1
                    continue
                if depth == stack.shape[0]:
                    stack = grown_1d(stack, depth + 1)
                stack[depth] = np.int64(target) * num_modes + next_mode
                depth += 1
    return known, borders[:num_borders].copy()


@jit(
    (TABLE, BOOLS, TABLE_64, TABLE_64, INT64S, INT64S, INT),
)
def transduce(
    table: Array,
    accepting: Array,
    modes: Array,
    outputs: Array,
    upwards: Array,
    classes: Array,
    max_states: int,
) -> tuple[int, Array, Array]:
    """The language that a byte transducer decodes into an automaton's language.

    ``modes[m, j]`` is the mode after joint class j in mode m, or -1; ``outputs[m, j]`` is the
    byte that it emits, or -1 for none. ``classes[byte]`` is the automaton's class of a byte. Mode
    0 alone is accepting, and every way round leads through it; ``upwards`` has the other modes,
    each after those that it leads to. So pairs in those modes are made after what they lead to,
    and equal ones are one (as in Revuz, 1992): most escapes come to nothing, or to the same.

    Returns:
        status, table, accepting. State 0 is the start; nearly minimal.
    """
    num_modes, num_classes = modes.shape
    live_start = np.zeros(num_modes + 1, np.int64)
    live = np.empty(num_modes * num_classes, np.int64)
    for mode in range(num_modes):
        end = live_start[mode]
        for j in range(num_classes):
            if modes[mode, j] >= 0:
                live[end] = j
                end += 1
        live_start[mode + 1] = end
    known, borders = _reached_modes(table, modes, outputs, live, live_start, classes)
    num_borders = borders.shape[0]
    if num_borders > max_states:
        return TOO_MANY_STATES, np.empty((0, num_classes), np.int32), accepting[:0].copy()
    number = np.full((table.shape[0], num_modes), -1, np.int32)
    for i in range(num_borders):
        number[borders[i], 0] = i
    out = np.full((num_borders + 64, num_classes), -1, np.int32)
    hashes = np.zeros(num_borders + 64, np.uint64)
    slots = np.full(256, -1, np.int32)
    num_states = num_borders
    for at in range(upwards.shape[0] + 1):
        mode = upwards[at] if at < upwards.shape[0] else 0
        for i in range(table.shape[0] if mode else num_borders):
            state = i if mode else borders[i]
            if not known[state, mode]:
                continue
            row = num_states if mode else i
            if row == out.shape[0]:
                out = grown_2d(out, row + 1)
                hashes = grown_1d(hashes, row + 1)
            for j in range(num_classes):
                out[row, j] = -1
            value = np.uint64(1469598103934665603)
            is_dead = True
            for k in range(live_start[mode], live_start[mode + 1]):
                j = live[k]
                target = np.int32(state)
                if outputs[mode, j] >= 0:
                    target = table[state, classes[outputs[mode, j]]]
                if target >= 0:
                    target = number[target, modes[mode, j]]
                if target >= 0:
                    out[row, j] = target
                    is_dead = False
                    value = (value ^ np.uint64(target)) * np.uint64(1099511628211)
                    value = (value ^ np.uint64(j)) * np.uint64(1099511628211)
            if is_dead or mode == 0:
                continue
            value ^= value >> np.uint64(29)
            mask = np.uint64(slots.shape[0] - 1)
            slot = value & mask
            found = -1
            while slots[slot] >= 0:
                candidate = slots[slot]
                if hashes[candidate] == value:
                    same = True
                    for j in range(num_classes):
                        if out[candidate, j] != out[row, j]:
                            same = False
                            break
                    if same:
                        found = candidate
                        break
                slot = (slot + np.uint64(1)) & mask
            if found < 0:
                if num_states >= max_states:
                    return TOO_MANY_STATES, out[:0], accepting[:0].copy()
                found = num_states
                hashes[found] = value
                slots[slot] = found
                num_states += 1
                if (num_states - num_borders) * 2 > slots.shape[0]:
                    slots = np.full(slots.shape[0] * 4, -1, np.int32)
                    mask = np.uint64(slots.shape[0] - 1)
                    for s in range(num_borders, num_states):
                        place = hashes[s] & mask
                        while slots[place] >= 0:
                            place = (place + np.uint64(1)) & mask
                        slots[place] = s
            number[state, mode] = found
    final = np.zeros(num_states, np.bool_)
    for i in range(num_borders):
        final[i] = accepting[borders[i]]
    return OK, out[:num_states].copy(), final

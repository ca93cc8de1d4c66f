"""The compiled part of ``Readings``: closures of configurations, and rows of sets of them.

Cells, configurations and sets are interned by open addressing: an entry is found by its hash, and
equal ones have one number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from ramet.grammars.regular.loops.tables import BOOLS, BYTES, INT, INT32S, TABLE, Array, sort_prefix
from ramet.jit import jit

ACCEPT_NODE = -1
"""The node of the configuration of a text that is complete. Foreign nodes are below it."""

DONE, FULL, NEED_TRANSITIONS, TOO_MANY = range(4)

# What is counted: cells, configurations, items of closures, sets, items of sets, generations; and
# what is requested.
CELLS, CONFIGURATIONS, CLOSED, SETS, ITEMS, GENERATION, REQUESTED = range(7)

MAX_READINGS = 20_000

_WRITES = types.int32[::1]
_TABLE_OUT = types.int32[:, ::1]
_COUNTS = types.int64[::1]


@jit("int64(int64, int64)")
def _mixed(a: Any, b: Any) -> Any:
    # Unsigned, since compiled code takes for granted that signed products don't overflow.
    h = np.uint64(a) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(b)
    h *= np.uint64(0xBF58476D1CE4E5B9)
    return np.int64((h ^ (h >> np.uint64(29))) & np.uint64(0x7FFFFFFFFFFFFFFF))


@jit((_TABLE_OUT, _WRITES, _COUNTS, INT, INT, INT))
def interned(pairs: Array, slots: Array, counts: Array, which: int, a: Any, b: Any) -> Any:
    """The number of a pair; -1 if there is no room for a new one."""
    mask = slots.shape[0] - 1
    slot = _mixed(a, b) & mask
    while slots[slot] >= 0:
        found = slots[slot]
        if pairs[found, 0] == a and pairs[found, 1] == b:
            return np.int64(found)
        slot = (slot + 1) & mask
    number = counts[which]
    if number >= pairs.shape[0]:
        counts[REQUESTED] = which
        return -1
    pairs[number, 0], pairs[number, 1] = a, b
    slots[slot] = number
    counts[which] = number + 1
    return number


_NETWORK = (INT32S, TABLE, BOOLS, BOOLS, BOOLS, BOOLS)
"""call_starts, calls, is_final, is_bare, is_loop, may_end: a network, and its foreign nodes."""

_STORE = (_TABLE_OUT, _WRITES, _TABLE_OUT, _WRITES, _TABLE_OUT, _WRITES, _WRITES, _COUNTS)
"""cells, cell_slots, configurations, configuration_slots, closures, closed, seen, counts."""


@jit((INT, *_NETWORK, *_STORE))
def close(  # type: ignore[no-untyped-def]
    first, call_starts, calls, is_final, is_bare, is_loop, may_end,
    cells, cell_slots, configurations, configuration_slots, closures, closed, seen, counts,
):  # fmt: skip
    """Computes a configuration's closure: calls entered, ended rules left before its next byte."""
    counts[GENERATION] += 1
    generation = counts[GENERATION]
    # Behind what is kept, the queue grows from the front and what is found from the back.
    begin = counts[CLOSED]
    end = closed.shape[0]
    if begin + 8 > end:
        counts[REQUESTED] = CLOSED
        return FULL
    seen[first] = generation
    closed[begin] = first
    head, tail, num_found = begin, begin + 1, 0
    accepts = False
    while head < tail:
        own = closed[head]
        head += 1
        node, stack = configurations[own, 0], configurations[own, 1]
        returns, is_found, start, stop = False, False, 0, 0
        if node < 0:
            is_found = True
            returns = may_end[-2 - node]
        elif is_loop[node] and cells[stack, 0] == node:
            start = -1
        else:
            is_found = not is_bare[node]
            start, stop = call_starts[node], call_starts[node + 1]
            returns = is_final[node]
        if tail - begin > MAX_READINGS:
            return TOO_MANY
        if tail + (stop - start) + 4 + num_found > end:
            counts[REQUESTED] = CLOSED
            return FULL
        if is_found:
            num_found += 1
            closed[end - num_found] = own
        for i in range(start, stop + 1):
            if i == stop:
                if returns:
                    after, below = cells[stack, 0], cells[stack, 1]
                elif start < 0:
                    after, below = node, cells[stack, 1]
                else:
                    continue
            elif i < 0:
                continue
            else:
                after, back = calls[i, 0], calls[i, 1]
                below = stack
                # A return to where nothing can follow is none; to a loop twice is once.
                is_needless = is_final[back] and (
                    (is_bare[back] and call_starts[back] == call_starts[back + 1])
                    or (is_loop[back] and cells[stack, 0] == back)
                )
                if not is_needless:
                    below = interned(cells, cell_slots, counts, CELLS, back, stack)
                    if below < 0:
                        return FULL
            new = interned(
                configurations, configuration_slots, counts, CONFIGURATIONS, after, below
            )
            if new < 0:
                return FULL
            if new == 0:
                accepts = True
            elif seen[new] != generation:
                seen[new] = generation
                closed[tail] = new
                tail += 1
    if accepts:
        num_found += 1
        closed[end - num_found] = 0
    for i in range(num_found):
        closed[begin + i] = closed[end - num_found + i]
    closures[first, 0], closures[first, 1] = begin, num_found
    counts[CLOSED] = begin + num_found
    return DONE


@jit((_WRITES, INT, _TABLE_OUT, _WRITES, _WRITES, _COUNTS))
def interned_set(  # type: ignore[no-untyped-def]
    found, size, sets, set_slots, items, counts
):  # fmt: skip
    """The number of the set ``found[:size]``, which is sorted on the way; -1: there is no room."""
    sort_prefix(found, size)
    code = np.int64(size)
    for i in range(size):
        code = _mixed(code, np.int64(found[i]))
    mask = set_slots.shape[0] - 1
    slot = code & mask
    while set_slots[slot] >= 0:
        number = set_slots[slot]
        start = sets[number, 0]
        if sets[number, 1] == size:
            is_same = True
            for i in range(size):
                if items[start + i] != found[i]:
                    is_same = False
                    break
            if is_same:
                return np.int64(number)
        slot = (slot + 1) & mask
    number, start = counts[SETS], counts[ITEMS]
    if number >= sets.shape[0] or start + size > items.shape[0]:
        counts[REQUESTED] = SETS if number >= sets.shape[0] else ITEMS
        return np.int64(-1)
    for i in range(size):
        items[start + i] = found[i]
    sets[number, 0], sets[number, 1] = start, size
    set_slots[slot] = number
    counts[SETS], counts[ITEMS] = number + 1, start + size
    return np.int64(number)


@jit(
    (
        *(INT, BYTES, TABLE, TABLE, BOOLS, _WRITES, _WRITES, _TABLE_OUT, _WRITES, _WRITES),
        *_NETWORK,
        *_STORE,
    ),
)
def write_row(  # type: ignore[no-untyped-def]
    state, class_of, transitions, foreign_transitions, has_transitions, row, found, sets, set_slots,
    items, call_starts, calls, is_final, is_bare, is_loop, may_end,
    cells, cell_slots, configurations, configuration_slots, closures, closed, seen, counts,
):  # fmt: skip
    """Write a set's row: for each byte the set after it, or -1.

    ``transitions`` has the network's next nodes by ``class_of`` bytes, ``foreign_transitions``
    those of foreign nodes by byte, where ``has_transitions``.
    """
    first, size = sets[state, 0], sets[state, 1]
    is_foreign = False
    for i in range(first, first + size):
        node = configurations[items[i], 0]
        if node < ACCEPT_NODE:
            is_foreign = True
            if not has_transitions[-2 - node]:
                counts[REQUESTED] = node
                return NEED_TRANSITIONS
    targets = np.empty(size, np.int64)
    known = np.empty((256, size), np.int32)
    codes = np.empty(256, np.int64)
    distinct = np.empty(256, np.int64)
    of_class = np.full(256, -1, np.int64)
    num_distinct = 0
    for byte in range(256):
        c = class_of[byte]
        row[byte] = -1
        if not is_foreign:
            # Bytes of one class lead to the same.
            if of_class[c] >= 0:
                row[byte] = row[of_class[c]]
                continue
            of_class[c] = byte
        num_targets = 0
        code = np.int64(0)
        for i in range(size):
            node = configurations[items[first + i], 0]
            target = np.int64(-1)
            if node >= 0:
                target = np.int64(transitions[node, c])
            elif node < ACCEPT_NODE:
                target = np.int64(foreign_transitions[-2 - node, byte])
            targets[i] = target
            num_targets += target != -1
            code = _mixed(code, target)
        if num_targets == 0:
            continue
        same = -1
        for before in range(num_distinct):
            if codes[before] == code:
                is_same = True
                for i in range(size):
                    if known[before, i] != targets[i]:
                        is_same = False
                        break
                if is_same:
                    same = distinct[before]
                    break
        if same >= 0:
            row[byte] = row[same]
            continue
        for i in range(size):
            known[num_distinct, i] = targets[i]
        codes[num_distinct], distinct[num_distinct] = code, byte
        num_distinct += 1
        for i in range(size):
            if targets[i] == -1:
                continue
            after = interned(
                configurations, configuration_slots, counts, CONFIGURATIONS, targets[i],
                configurations[items[first + i], 1],
            )  # fmt: skip
            if after < 0:
                return FULL
            if closures[after, 0] < 0:
                status = close(
                    after, call_starts, calls, is_final, is_bare, is_loop, may_end,
                    cells, cell_slots, configurations, configuration_slots, closures, closed, seen,
                    counts,
                )  # fmt: skip
                if status != DONE:
                    return status
        counts[GENERATION] += 1
        generation = counts[GENERATION]
        num_found = 0
        for i in range(size):
            if targets[i] == -1:
                continue
            after = interned(
                configurations, configuration_slots, counts, CONFIGURATIONS, targets[i],
                configurations[items[first + i], 1],
            )  # fmt: skip
            start = closures[after, 0]
            for j in range(start, start + closures[after, 1]):
                own = closed[j]
                if seen[own] != generation:
                    seen[own] = generation
                    if num_found == found.shape[0]:
                        return TOO_MANY
                    found[num_found] = own
                    num_found += 1
        number = interned_set(found, num_found, sets, set_slots, items, counts)
        if number < 0:
            return FULL
        row[byte] = number
    return DONE


@jit((TABLE, INT, _WRITES))
def index_pairs(pairs: Array, count: int, slots: Array) -> None:
    """Enter pairs into a table of slots."""
    mask = slots.shape[0] - 1
    for number in range(count):
        slot = _mixed(np.int64(pairs[number, 0]), np.int64(pairs[number, 1])) & mask
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = number


@jit((TABLE, INT, INT32S, _WRITES))
def index_sets(sets: Array, count: int, items: Array, slots: Array) -> None:
    """Enter sets into a table of slots."""
    mask = slots.shape[0] - 1
    for number in range(count):
        code = np.int64(sets[number, 1])
        for i in range(sets[number, 0], sets[number, 0] + sets[number, 1]):
            code = _mixed(code, np.int64(items[i]))
        slot = code & mask
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = number

"""Compiled loops that make automata: subset construction, products, transducers, tries.

Tables are int32[num_states, num_classes], where a class is a set of bytes that no state tells
apart; -1 is dead. All loops count their work, so limits are the same on every machine.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[Any]

OK = 0
TOO_MANY_STATES = 1
TOO_MUCH_WORK = 2


# Plain loops: array slices and numpy's sort would take several times as long to compile.


@njit(cache=True, nogil=True)
def _grown_1d(array: Array, size: int) -> Array:
    bigger = np.empty(max(size, 2 * array.shape[0]), array.dtype)
    for i in range(array.shape[0]):
        bigger[i] = array[i]
    return bigger


@njit(cache=True, nogil=True)
def _grown_2d(array: Array, size: int) -> Array:
    bigger = np.empty((max(size, 2 * array.shape[0]), array.shape[1]), array.dtype)
    for i in range(array.shape[0]):
        for j in range(array.shape[1]):
            bigger[i, j] = array[i, j]
    return bigger


@njit(cache=True, nogil=True)
def _sort_prefix(values: Array, length: int) -> None:
    """Sort ``values[:length]`` in place: Shell's sort with Knuth's gaps."""
    gap = 1
    while gap < length // 9:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, length):
            value = values[i]
            j = i - gap
            while j >= 0 and values[j] > value:
                values[j + gap] = values[j]
                j -= gap
            values[j + gap] = value
        gap //= 3


@njit(cache=True, nogil=True)
def determinise(
    edge_start: Array,
    edge_lo: Array,
    edge_hi: Array,
    edge_dst: Array,
    eps_start: Array,
    eps_dst: Array,
    final: Array,
    start: int,
    num_classes: int,
    max_states: int,
    max_work: int,
    absorbing: int,
) -> tuple[int, Array, Array]:
    """Subset construction (Rabin and Scott, 1959) of an NFA in compressed-row form.

    State s has the edges ``edge_start[s]:edge_start[s + 1]``, each on the classes lo to hi
    inclusive, and the empty moves ``eps_dst[eps_start[s]:eps_start[s + 1]]``. A set that has the
    state ``absorbing`` (-1: there is none), from which every text is accepted, is that state alone.

    Returns:
        status, table, accepting. State 0 is the start; every state is reachable.
    """
    num_nfa = final.shape[0]
    stamp = np.zeros(num_nfa, np.int64)
    stack = np.empty(num_nfa + 1, np.int32)
    members = np.empty(num_nfa + 1, np.int32)
    head = np.full(num_classes, -1, np.int32)
    pool_dst = np.empty(256, np.int32)
    pool_next = np.empty(256, np.int32)
    set_data = np.empty(1024, np.int32)
    set_start = np.zeros(65, np.int64)
    set_hash = np.empty(64, np.uint64)
    table = np.empty((64, num_classes), np.int32)
    accepting = np.zeros(64, np.bool_)
    slots = np.full(256, -1, np.int32)
    num_states = 0
    work = 0
    generation = 0
    # The first set is the start's closure: a pool of one entry stands for it.
    pool_dst[0] = start
    pool_next[0] = -1
    current = -1
    while current < num_states:
        if current >= 0:
            pool_len = 0
            head[:] = -1
            for i in range(set_start[current], set_start[current + 1]):
                state = set_data[i]
                for e in range(edge_start[state], edge_start[state + 1]):
                    lo, hi = edge_lo[e], edge_hi[e]
                    if pool_len + hi - lo + 1 > pool_dst.shape[0]:
                        pool_dst = _grown_1d(pool_dst, pool_len + hi - lo + 1)
                        pool_next = _grown_1d(pool_next, pool_len + hi - lo + 1)
                    for c in range(lo, hi + 1):
                        pool_dst[pool_len] = edge_dst[e]
                        pool_next[pool_len] = head[c]
                        head[c] = pool_len
                        pool_len += 1
            work += pool_len + 1
        for c in range(num_classes if current >= 0 else 1):
            first = head[c] if current >= 0 else 0
            if first < 0:
                table[current, c] = -1
                continue
            if current >= 0 and c > 0:
                # A neighbouring class often leads to the same places: then to the same state.
                left, right = head[c - 1], first
                while left >= 0 and right >= 0 and pool_dst[left] == pool_dst[right]:
                    left = pool_next[left]
                    right = pool_next[right]
                if left < 0 and right < 0:
                    table[current, c] = table[current, c - 1]
                    continue
            generation += 1
            num_members = 0
            depth = 0
            is_final = False
            entry = first
            while entry >= 0:
                state = pool_dst[entry]
                entry = pool_next[entry]
                if stamp[state] != generation:
                    stamp[state] = generation
                    stack[depth] = state
                    depth += 1
                while depth > 0:
                    depth -= 1
                    state = stack[depth]
                    work += 1
                    if final[state]:
                        is_final = True
                    if final[state] or edge_start[state] < edge_start[state + 1]:
                        members[num_members] = state
                        num_members += 1
                    for e in range(eps_start[state], eps_start[state + 1]):
                        target = eps_dst[e]
                        if stamp[target] != generation:
                            stamp[target] = generation
                            stack[depth] = target
                            depth += 1
            if work > max_work:
                return TOO_MUCH_WORK, table[:0], accepting[:0]
            if num_members == 0 and current >= 0:
                table[current, c] = -1
                continue
            if absorbing >= 0 and stamp[absorbing] == generation:
                members[0] = absorbing
                num_members = 1
            _sort_prefix(members, num_members)
            value = np.uint64(1469598103934665603)
            for i in range(num_members):
                value = (value ^ np.uint64(members[i])) * np.uint64(1099511628211)
            value ^= value >> np.uint64(29)
            mask = np.uint64(slots.shape[0] - 1)
            slot = value & mask
            found = -1
            while slots[slot] >= 0:
                candidate = slots[slot]
                begin = set_start[candidate]
                if set_hash[candidate] == value and set_start[candidate + 1] - begin == num_members:
                    same = True
                    for i in range(num_members):
                        if set_data[begin + i] != members[i]:
                            same = False
                            break
                    if same:
                        found = candidate
                        break
                slot = (slot + np.uint64(1)) & mask
            if found < 0:
                if num_states >= max_states:
                    return TOO_MANY_STATES, table[:0], accepting[:0]
                found = num_states
                begin = set_start[found]
                if begin + num_members > set_data.shape[0]:
                    set_data = _grown_1d(set_data, begin + num_members)
                for i in range(num_members):
                    set_data[begin + i] = members[i]
                if found + 2 > set_start.shape[0]:
                    set_start = _grown_1d(set_start, found + 2)
                if found + 1 > table.shape[0]:
                    table = _grown_2d(table, found + 1)
                    accepting = _grown_1d(accepting, found + 1)
                    set_hash = _grown_1d(set_hash, found + 1)
                set_start[found + 1] = begin + num_members
                set_hash[found] = value
                accepting[found] = is_final
                slots[slot] = found
                num_states += 1
                if num_states * 2 > slots.shape[0]:
                    slots = np.full(slots.shape[0] * 4, -1, np.int32)
                    mask = np.uint64(slots.shape[0] - 1)
                    for s in range(num_states):
                        place = set_hash[s] & mask
                        while slots[place] >= 0:
                            place = (place + np.uint64(1)) & mask
                        slots[place] = s
            if current >= 0:
                table[current, c] = found
        current += 1
    return OK, table[:num_states].copy(), accepting[:num_states].copy()


@njit(cache=True, nogil=True)
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
        for j in range(num_classes if current >= 0 else 1):
            if current < 0:
                a, b = start_a, start_b
            else:
                a, b = keys[current] // num_b - 1, keys[current] % num_b - 1
                if a >= 0:
                    a = table_a[a, classes_a[j]]
                if b >= 0:
                    b = table_b[b, classes_b[j]]
                if (a < 0 and (b < 0 or not only_b)) or (b < 0 and not only_a):
                    table[current, j] = -1
                    continue
            key = np.int64(a + 1) * num_b + b + 1
            mask = slots.shape[0] - 1
            slot = (key * 0x9E3779B97F4A7C1 >> 17) & mask
            while slots[slot] >= 0 and keys[slots[slot]] != key:
                slot = (slot + 1) & mask
            found = slots[slot]
            if found < 0:
                if num_states >= max_states:
                    return TOO_MANY_STATES, table[:0], accepting[:0], pairs[:0]
                found = num_states
                if found + 1 > table.shape[0]:
                    table = _grown_2d(table, found + 1)
                    accepting = _grown_1d(accepting, found + 1)
                    keys = _grown_1d(keys, found + 1)
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
                        place = (keys[s] * 0x9E3779B97F4A7C1 >> 17) & mask
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


@njit(cache=True, nogil=True)
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
                    stack = _grown_1d(stack, depth + 1)
                stack[depth] = np.int64(target) * num_modes + next_mode
                depth += 1
    return known, borders[:num_borders].copy()


@njit(cache=True, nogil=True)
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
                out = _grown_2d(out, row + 1)
                hashes = _grown_1d(hashes, row + 1)
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


@njit(cache=True, nogil=True)
def trie(
    data: Array,
    starts: Array,
    class_of: Array,
    num_classes: int,
    max_states: int,
) -> tuple[int, Array, Array]:
    """The tree of sorted, distinct texts ``data[starts[i]:starts[i + 1]]``, as an automaton."""
    table = np.full((64, num_classes), -1, np.int32)
    accepting = np.zeros(64, np.bool_)
    num_states = 1
    for i in range(starts.shape[0] - 1):
        state = 0
        for at in range(starts[i], starts[i + 1]):
            c = class_of[data[at]]
            if table[state, c] < 0:
                if num_states >= max_states:
                    return TOO_MANY_STATES, table[:0], accepting[:0]
                if num_states == table.shape[0]:
                    table = _grown_2d(table, num_states + 1)
                    accepting = _grown_1d(accepting, num_states + 1)
                table[num_states] = -1
                accepting[num_states] = False
                table[state, c] = num_states
                num_states += 1
            state = table[state, c]
        accepting[state] = True
    return OK, table[:num_states].copy(), accepting[:num_states].copy()

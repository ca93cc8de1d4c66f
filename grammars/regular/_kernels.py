"""Compiled loops over automata: subset construction, products, minimisation.

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
) -> tuple[int, Array, Array]:
    """The reachable product of two automata on joint classes.

    Joint class j is class ``classes_a[j]`` of a and ``classes_b[j]`` of b. Bit 2 * x + y of
    ``truth`` says whether a pair accepts whose parts accept as x and y.

    Returns:
        status, table, accepting. State 0 is the start.
    """
    num_classes = classes_a.shape[0]
    num_b = table_b.shape[0] + 1
    only_a = (truth >> 2) & 1
    only_b = (truth >> 1) & 1
    slots = np.full(256, -1, np.int32)
    keys = np.empty(64, np.int64)
    table = np.empty((64, num_classes), np.int32)
    accepting = np.zeros(64, np.bool_)
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
                    return TOO_MANY_STATES, table[:0], accepting[:0]
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
    return OK, table[:num_states].copy(), accepting[:num_states].copy()


@njit(cache=True, nogil=True)
def transduce(
    table: Array,
    accepting: Array,
    start: int,
    modes: Array,
    outputs: Array,
    accept_mode: Array,
    classes: Array,
    max_states: int,
) -> tuple[int, Array, Array]:
    """The language that a byte transducer decodes into an automaton's language.

    ``modes[m, j]`` is the mode after joint class j in mode m, or -1; ``outputs[m, j]`` is the
    byte that it emits, or -1 for none. ``classes[byte]`` is the automaton's class of a byte.

    Returns:
        status, table, accepting. State 0 is the start.
    """
    num_modes, num_classes = modes.shape
    # The classes with which each mode goes on.
    live_start = np.zeros(num_modes + 1, np.int64)
    live = np.empty(num_modes * num_classes, np.int64)
    for mode in range(num_modes):
        end = live_start[mode]
        for j in range(num_classes):
            if modes[mode, j] >= 0:
                live[end] = j
                end += 1
        live_start[mode + 1] = end
    known = np.full((table.shape[0], num_modes), -1, np.int32)
    order = np.empty(64, np.int64)
    out = np.empty((64, num_classes), np.int32)
    final = np.zeros(64, np.bool_)
    order[0] = start * num_modes
    known[start, 0] = 0
    final[0] = accepting[start] and accept_mode[0]
    num_states = 1
    current = 0
    while current < num_states:
        state, mode = order[current] // num_modes, order[current] % num_modes
        out[current] = -1
        for i in range(live_start[mode], live_start[mode + 1]):
            j = live[i]
            next_mode = modes[mode, j]
            target = np.int32(state)
            if outputs[mode, j] >= 0:
                target = table[state, classes[outputs[mode, j]]]
            if target < 0:
                continue
            if known[target, next_mode] < 0:
                if num_states >= max_states:
                    return TOO_MANY_STATES, out[:0], final[:0]
                if num_states + 1 > out.shape[0]:
                    out = _grown_2d(out, num_states + 1)
                    final = _grown_1d(final, num_states + 1)
                    order = _grown_1d(order, num_states + 1)
                known[target, next_mode] = num_states
                order[num_states] = np.int64(target) * num_modes + next_mode
                final[num_states] = accepting[target] and accept_mode[next_mode]
                num_states += 1
            out[current, j] = known[target, next_mode]
        current += 1
    return OK, out[:num_states].copy(), final[:num_states].copy()


@njit(cache=True, nogil=True)
def _mark(
    element: int,
    elements: Array,
    place: Array,
    block: Array,
    first: Array,
    marked: Array,
    touched: Array,
    num_touched: int,
) -> int:
    own = block[element]
    here, there = place[element], first[own] + marked[own]
    if here < there:
        return num_touched
    other = elements[there]
    elements[here] = other
    place[other] = here
    elements[there] = element
    place[element] = there
    if marked[own] == 0:
        touched[num_touched] = own
        num_touched += 1
    marked[own] += 1
    return num_touched


@njit(cache=True, nogil=True)
def _split(
    elements: Array,
    block: Array,
    first: Array,
    past: Array,
    marked: Array,
    touched: Array,
    num_touched: int,
    num_blocks: int,
) -> int:
    while num_touched > 0:
        num_touched -= 1
        own = touched[num_touched]
        middle = first[own] + marked[own]
        if middle == past[own]:
            marked[own] = 0
            continue
        if marked[own] <= past[own] - middle:
            first[num_blocks], past[num_blocks] = first[own], middle
            first[own] = middle
        else:
            first[num_blocks], past[num_blocks] = middle, past[own]
            past[own] = middle
        for i in range(first[num_blocks], past[num_blocks]):
            block[elements[i]] = num_blocks
        marked[own] = 0
        marked[num_blocks] = 0
        num_blocks += 1
    return num_blocks


@njit(cache=True, nogil=True)
def canonicalise(
    class_of: Array, table: Array, accepting: Array, start: int
) -> tuple[Array, Array, Array]:
    """The one minimal trimmed automaton of a language.

    Partition refinement on transitions (Valmari and Lehtinen, STACS 2008), O(m log n) for m
    live transitions. The states must be reachable from ``start``; those that reach no accepting
    state are dropped. States are numbered breadth first from the start, classes by their first
    symbols, and classes that no state tells apart are one.

    Args:
        class_of: int64[num_symbols].
        table: int32[num_states, num_classes].
        accepting: bool[num_states].
        start: the start state.

    Returns:
        The same for the minimal automaton, whose start is 0. No states for the empty language.
    """
    num_states, num_classes = table.shape
    order = np.empty(num_classes, np.int64)
    is_known = np.zeros(num_classes, np.bool_)
    num_used = 0
    for symbol in range(class_of.shape[0]):
        c = class_of[symbol]
        if not is_known[c]:
            is_known[c] = True
            order[num_used] = c
            num_used += 1
    # Incoming moves of each state, counted and filled.
    in_start = np.zeros(num_states + 1, np.int64)
    for s in range(num_states):
        for c in range(num_classes):
            if table[s, c] >= 0:
                in_start[table[s, c] + 1] += 1
    for s in range(num_states):
        in_start[s + 1] += in_start[s]
    in_src = np.empty(in_start[num_states], np.int32)
    fill = in_start[:-1].copy()
    for s in range(num_states):
        for c in range(num_classes):
            t = table[s, c]
            if t >= 0:
                in_src[fill[t]] = s
                fill[t] += 1
    live = np.zeros(num_states, np.bool_)
    queue = np.empty(num_states, np.int32)
    length = 0
    for s in range(num_states):
        if accepting[s]:
            live[s] = True
            queue[length] = s
            length += 1
    at = 0
    while at < length:
        s = queue[at]
        at += 1
        for i in range(in_start[s], in_start[s + 1]):
            if not live[in_src[i]]:
                live[in_src[i]] = True
                queue[length] = in_src[i]
                length += 1
    if num_states == 0 or not live[start]:
        return np.zeros_like(class_of), np.empty((0, 1), np.int32), np.empty(0, np.bool_)
    num_live = length
    # States: one block of live ones, split by acceptance.
    elements = np.empty(num_live, np.int32)
    place = np.empty(num_states, np.int32)
    block = np.zeros(num_states, np.int32)
    first = np.zeros(num_live + 1, np.int32)
    past = np.zeros(num_live + 1, np.int32)
    marked = np.zeros(num_live + 1, np.int32)
    touched = np.empty(num_live + 1, np.int32)
    i = 0
    for s in range(num_states):
        if live[s]:
            elements[i] = s
            place[s] = i
            i += 1
    past[0] = num_live
    num_blocks = 1
    num_touched = 0
    for s in range(num_states):
        if live[s] and accepting[s]:
            num_touched = _mark(s, elements, place, block, first, marked, touched, num_touched)
    num_blocks = _split(elements, block, first, past, marked, touched, num_touched, num_blocks)
    # Moves, in the order of their classes: one block a class.
    total = 0
    for s in range(num_states):
        if live[s]:
            for c in range(num_classes):
                if table[s, c] >= 0 and live[table[s, c]]:
                    total += 1
    move_src = np.empty(total, np.int32)
    move_dst = np.empty(total, np.int32)
    moves = np.arange(total).astype(np.int32)
    move_place = moves.copy()
    move_block = np.zeros(total, np.int32)
    size = total + num_classes + 1
    move_first = np.zeros(size, np.int32)
    move_past = np.zeros(size, np.int32)
    move_marked = np.zeros(size, np.int32)
    move_touched = np.empty(size, np.int32)
    num_move_blocks = 0
    m = 0
    for c in range(num_classes):
        begin = m
        for i in range(num_live):
            s = queue[i]
            t = table[s, c]
            if t >= 0 and live[t]:
                move_src[m] = s
                move_dst[m] = t
                move_block[m] = num_move_blocks
                m += 1
        if m > begin:
            move_first[num_move_blocks] = begin
            move_past[num_move_blocks] = m
            num_move_blocks += 1
    in_start[:] = 0
    for m in range(total):
        in_start[move_dst[m] + 1] += 1
    for s in range(num_states):
        in_start[s + 1] += in_start[s]
    into = np.empty(total, np.int32)
    fill = in_start[:-1].copy()
    for m in range(total):
        into[fill[move_dst[m]]] = m
        fill[move_dst[m]] += 1
    next_block, next_move_block = 1, 0
    while next_move_block < num_move_blocks:
        num_touched = 0
        for i in range(move_first[next_move_block], move_past[next_move_block]):
            num_touched = _mark(
                move_src[moves[i]], elements, place, block, first, marked, touched, num_touched
            )
        num_blocks = _split(elements, block, first, past, marked, touched, num_touched, num_blocks)
        next_move_block += 1
        while next_block < num_blocks:
            num_touched = 0
            for i in range(first[next_block], past[next_block]):
                s = elements[i]
                for k in range(in_start[s], in_start[s + 1]):
                    num_touched = _mark(
                        into[k], moves, move_place, move_block, move_first, move_marked,
                        move_touched, num_touched,
                    )  # fmt: skip
            num_move_blocks = _split(
                moves, move_block, move_first, move_past, move_marked, move_touched,
                num_touched, num_move_blocks,
            )  # fmt: skip
            next_block += 1
    # Number the blocks breadth first.
    number = np.full(num_blocks, -1, np.int32)
    blocks = np.empty(num_blocks, np.int32)
    number[block[start]] = 0
    blocks[0] = block[start]
    count = 1
    at = 0
    out = np.empty((num_blocks, num_used), np.int32)
    final = np.empty(num_blocks, np.bool_)
    hashes = np.zeros(num_used, np.uint64)
    while at < count:
        s = elements[first[blocks[at]]]
        final[at] = accepting[s]
        for k in range(num_used):
            t = table[s, order[k]]
            if t < 0 or not live[t]:
                out[at, k] = -1
            else:
                b = block[t]
                if number[b] < 0:
                    number[b] = count
                    blocks[count] = b
                    count += 1
                out[at, k] = number[b]
            hashes[k] = (hashes[k] ^ np.uint64(out[at, k] + 1)) * np.uint64(1099511628211)
            hashes[k] ^= hashes[k] >> np.uint64(31)
        at += 1
    # Join the columns that no state tells apart any more.
    column_of = np.full(num_classes, -1, np.int64)
    kept = np.empty(num_used, np.int64)
    num_kept = 0
    for k in range(num_used):
        for j in range(num_kept):
            if hashes[k] == hashes[kept[j]]:
                equal = True
                for s in range(count):
                    if out[s, k] != out[s, kept[j]]:
                        equal = False
                        break
                if equal:
                    column_of[order[k]] = j
                    break
        if column_of[order[k]] < 0:
            column_of[order[k]] = num_kept
            kept[num_kept] = k
            num_kept += 1
    columns = np.empty((count, num_kept), np.int32)
    for s in range(count):
        for j in range(num_kept):
            columns[s, j] = out[s, kept[j]]
    classes = np.empty_like(class_of)
    for symbol in range(class_of.shape[0]):
        classes[symbol] = column_of[class_of[symbol]]
    return classes, columns, final[:count].copy()


@njit(cache=True, nogil=True)
def joint_classes(a: Array, b: Array) -> tuple[Array, Array, Array]:
    """The classes of symbols that two class arrays both don't tell apart.

    Returns:
        int64[num_symbols], each symbol's joint class; by joint class, its class in a and in b.
    """
    num_symbols = a.shape[0]
    width = b.max() + 1
    known = np.full((a.max() + 1) * width, -1, np.int64)
    joint = np.empty(num_symbols, np.int64)
    of_a = np.empty(num_symbols, np.int64)
    of_b = np.empty(num_symbols, np.int64)
    count = 0
    for symbol in range(num_symbols):
        pair = np.int64(a[symbol]) * width + b[symbol]
        if known[pair] < 0:
            known[pair] = count
            of_a[count] = a[symbol]
            of_b[count] = b[symbol]
            count += 1
        joint[symbol] = known[pair]
    return joint, of_a[:count].copy(), of_b[:count].copy()


@njit(cache=True, nogil=True)
def equal_columns(columns: Array) -> tuple[Array, Array]:
    """The classes of equal columns of an int64[num_rows, num_symbols] array.

    Returns:
        int64[num_symbols], each column's class; by class, the first of its columns.
    """
    num_rows, num_symbols = columns.shape
    hashes = np.zeros(num_symbols, np.uint64)
    for row in range(num_rows):
        for symbol in range(num_symbols):
            value = (hashes[symbol] ^ np.uint64(columns[row, symbol] + 1)) * np.uint64(
                1099511628211
            )
            hashes[symbol] = value ^ (value >> np.uint64(31))
    class_of = np.full(num_symbols, -1, np.int64)
    firsts = np.empty(num_symbols, np.int64)
    count = 0
    for symbol in range(num_symbols):
        for c in range(count):
            if hashes[symbol] == hashes[firsts[c]]:
                equal = True
                for row in range(num_rows):
                    if columns[row, symbol] != columns[row, firsts[c]]:
                        equal = False
                        break
                if equal:
                    class_of[symbol] = c
                    break
        if class_of[symbol] < 0:
            class_of[symbol] = count
            firsts[count] = symbol
            count += 1
    return class_of, firsts[:count].copy()


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

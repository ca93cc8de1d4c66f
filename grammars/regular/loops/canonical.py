"""Compiled loops that make automata canonical, and join byte classes."""

from __future__ import annotations

import numpy as np
from numba import njit, types

from ramet.jit import jit

from .tables import BOOLS, BYTES, INT, INT32S, INT64S, TABLE, TABLE_64, Array

_WRITES = types.int32[::1]


@jit((INT, *(_WRITES,) * 6, INT))
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


@jit((*(_WRITES,) * 6, INT, INT))
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


@njit
def _distinct_columns(columns, hashes):  # type: ignore[no-untyped-def]
    """Each column's class of equal ones (int64[num_columns]); by class, its first column."""
    num_rows, num_columns = columns.shape
    class_of = np.full(num_columns, -1, np.int64)
    firsts = np.empty(num_columns, np.int64)
    count = 0
    for column in range(num_columns):
        for c in range(count):
            if hashes[column] == hashes[firsts[c]]:
                equal = True
                for row in range(num_rows):
                    if columns[row, column] != columns[row, firsts[c]]:
                        equal = False
                        break
                if equal:
                    class_of[column] = c
                    break
        if class_of[column] < 0:
            class_of[column] = count
            firsts[count] = column
            count += 1
    return class_of, firsts[:count].copy()


@jit((INT64S, TABLE, BOOLS, INT32S, INT32S, INT))
def numbered(
    class_of: Array, table: Array, accepting: Array, block: Array, members: Array, start: int
) -> tuple[Array, Array, Array]:
    """The automaton whose states are the blocks of another one's states.

    Args:
        class_of, table, accepting: of an automaton, as for ``canonicalise``.
        block: int32[num_states]: each state's block, or -1 for one that is left out.
        members: int32[num_blocks or more]: a state of each block.
        start: the start state; every block is reachable from it.

    Returns:
        The same arrays of the new automaton. States are numbered breadth first from the start,
        classes by their first symbols, and classes that no state distinguishes are one.
    """
    num_classes = table.shape[1]
    num_blocks = np.int64(0)
    for s in range(block.shape[0]):
        num_blocks = max(num_blocks, np.int64(block[s]) + 1)
    order = np.empty(num_classes, np.int64)
    is_known = np.zeros(num_classes, np.bool_)
    num_used = 0
    for symbol in range(class_of.shape[0]):
        c = class_of[symbol]
        if not is_known[c]:
            is_known[c] = True
            order[num_used] = c
            num_used += 1
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
        s = members[blocks[at]]
        final[at] = accepting[s]
        for k in range(num_used):
            t = table[s, order[k]]
            if t < 0 or block[t] < 0:
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
    # Join the columns that no state distinguishes any more.
    joined, kept = _distinct_columns(out[:count], hashes)
    column_of = np.full(num_classes, -1, np.int64)
    for k in range(num_used):
        column_of[order[k]] = joined[k]
    num_kept = kept.shape[0]
    columns = np.empty((count, num_kept), np.int32)
    for s in range(count):
        for j in range(num_kept):
            columns[s, j] = out[s, kept[j]]
    classes = np.empty_like(class_of)
    for symbol in range(class_of.shape[0]):
        classes[symbol] = column_of[class_of[symbol]]
    return classes, columns, final[:count].copy()


@jit((INT64S, TABLE, BOOLS, INT))
def canonicalise(
    class_of: Array, table: Array, accepting: Array, start: int
) -> tuple[Array, Array, Array]:
    """The one minimal trimmed automaton of a language.

    Partition refinement on transitions (Valmari and Lehtinen, STACS 2008), O(m log n) for m
    live transitions. The states must be reachable from ``start``; those that reach no accepting
    state are dropped. States are numbered breadth first from the start, classes by their first
    symbols, and classes that no state distinguishes are one.

    Args:
        class_of: int64[num_symbols].
        table: int32[num_states, num_classes].
        accepting: bool[num_states].
        start: the start state.

    Returns:
        The same for the minimal automaton, whose start is 0. No states for the empty language.
    """
    num_states, num_classes = table.shape
    # Incoming transitions of each state, counted and filled.
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
    transitions = np.arange(total).astype(np.int32)
    move_place = transitions.copy()
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
                move_src[transitions[i]],
                elements,
                place,
                block,
                first,
                marked,
                touched,
                num_touched,
            )
        num_blocks = _split(elements, block, first, past, marked, touched, num_touched, num_blocks)
        next_move_block += 1
        while next_block < num_blocks:
            num_touched = 0
            for i in range(first[next_block], past[next_block]):
                s = elements[i]
                for k in range(in_start[s], in_start[s + 1]):
                    num_touched = _mark(
                        into[k], transitions, move_place, move_block, move_first, move_marked,
                        move_touched, num_touched,
                    )  # fmt: skip
            num_move_blocks = _split(
                transitions, move_block, move_first, move_past, move_marked, move_touched,
                num_touched, num_move_blocks,
            )  # fmt: skip
            next_block += 1
    for s in range(num_states):
        if not live[s]:
            block[s] = -1
    for i in range(num_blocks):
        first[i] = elements[first[i]]
    return numbered(class_of, table, accepting, block, first, start)  # type: ignore[no-any-return]


@jit((BYTES, BYTES))
def joint_classes(a: Array, b: Array) -> tuple[Array, Array, Array]:
    """The classes of symbols that neither of two class arrays distinguishes.

    Returns:
        int64[num_symbols], each symbol's joint class; by joint class, its class in a and in b.
    """
    num_symbols = a.shape[0]
    most_a = most_b = np.int64(0)
    for symbol in range(num_symbols):
        most_a, most_b = max(most_a, np.int64(a[symbol])), max(most_b, np.int64(b[symbol]))
    width = most_b + 1
    known = np.full((most_a + 1) * width, -1, np.int64)
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


@jit((TABLE_64,))
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
    classes: tuple[Array, Array] = _distinct_columns(columns, hashes)
    return classes

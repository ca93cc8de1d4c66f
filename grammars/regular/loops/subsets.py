"""Subset construction, compiled."""

from __future__ import annotations

import numpy as np

from ramet.jit import jit

from .tables import (
    BOOLS,
    INT,
    INT32S,
    INT64S,
    OK,
    TOO_MANY_STATES,
    TOO_MUCH_WORK,
    Array,
    grown_1d,
    grown_2d,
    sort_prefix,
)


@jit(
    (INT64S, INT32S, INT32S, INT32S, INT64S, INT32S, BOOLS, INT, INT, INT, INT, INT),
)
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
    inclusive, and the epsilon edges ``eps_dst[eps_start[s]:eps_start[s + 1]]``. A set that has the
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
                        pool_dst = grown_1d(pool_dst, pool_len + hi - lo + 1)
                        pool_next = grown_1d(pool_next, pool_len + hi - lo + 1)
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
            sort_prefix(members, num_members)
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
                    set_data = grown_1d(set_data, begin + num_members)
                for i in range(num_members):
                    set_data[begin + i] = members[i]
                if found + 2 > set_start.shape[0]:
                    set_start = grown_1d(set_start, found + 2)
                if found + 1 > table.shape[0]:
                    table = grown_2d(table, found + 1)
                    accepting = grown_1d(accepting, found + 1)
                    set_hash = grown_1d(set_hash, found + 1)
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

"""The compiled walk of the token trie against a machine: one mask."""

from __future__ import annotations

import numpy as np
from numba import njit

from .automaton import LAZY

DONE, NEED_ROW, NEED_TRANSITION, NEED_EDGE, MANY_UNCERTAIN, MANY_STACKS, UNDECIDED = range(7)
"""What ``walk`` ended with.

- ``DONE``: the mask is complete; ``UNDECIDED``: but for the uncertain nodes.
- ``NEED_ROW``: the row of state ``work[1, 0]`` is missing.
- ``NEED_TRANSITION``: context ``work[1, 0]``'s transition by label ``work[0, -1]`` is missing.
- ``NEED_EDGE``: the entry of state ``work[1, 0]``'s row for byte ``work[0, -1]`` is missing.
- ``MANY_UNCERTAIN``, ``MANY_STACKS``: no more room for uncertain nodes, or for stacks.

After the middle ones, fill in what is missing and call it again: it goes on where it stopped.
"""

_SIGNATURE = (
    "int64(int32[:,::1], int32[:,::1], int64, int64, int64, int64, int64, int32[:,::1],"
    " int32[:,::1], int32[:,::1], int32[::1], uint64[::1], int32[::1], int32[::1], int32[::1],"
    " int32[:,::1], int32[::1])"
)


@njit("boolean(uint64[::1], int64, int64)", cache=True, nogil=True, inline="always")
def _meets(words, a, b):  # type: ignore[no-untyped-def]
    for i in range(1, 1 + min(words[a], words[b])):  # noqa: SIM110 (compiled)
        if words[a + i] & words[b + i]:
            return True
    return False


@njit("boolean(uint64[::1], int64, int64)", cache=True, nogil=True, inline="always")
def _has(words, a, label):  # type: ignore[no-untyped-def]
    word = label >> 6
    if word >= words[a]:
        return False
    return (words[a + 1 + word] >> np.uint64(label & 63)) & np.uint64(1) != 0


@njit(_SIGNATURE, cache=True, nogil=True)
def walk(  # type: ignore[no-untyped-def]
    trie, roots, resume, state, context, stack, free,
    rows, states, contexts, transitions, words, pushes, stacks, mask, work, uncertain,
):  # fmt: skip
    """Set the bits of all tokens that a position allows.

    Args:
        trie: see ``trie.py``.
        roots: int32[n, 3]: the subtrees to walk: their roots' bytes, first nodes, ends. Those
            whose byte is dead are skipped unread.
        resume: 1 to go on where the last call stopped.
        state, context, stack: the position that is asked about (not read when going on).
        free: the first free node of ``stacks`` (not read when going on).
        rows, states, contexts, transitions, words, pushes, stacks: the machine's arrays.
        mask: int32[num_words], or-ed into.
        work: int32[3, max_token_len + 3]. ``work[:, d + 1]`` is the state, context and stack at
            which depth d begins. ``work[0, 0]`` is the node to go on with, in the subtree of the
            root before ``work[1, last]``; ``work[2, 0]`` the next free node of ``stacks``;
            ``work[1, 0]`` and ``work[0, last]`` say what is missing.
        uncertain: the nodes whose tokens depend on a text that is not known; entry 0 counts them.
    """
    last = work.shape[1] - 1
    if resume:
        node = np.int64(work[0, 0])
        free = np.int64(work[2, 0])
        root = np.int64(work[1, last])
        num_nodes = np.int64(roots[root - 1, 2])
    else:
        node = np.int64(0)
        num_nodes = np.int64(0)
        root = np.int64(0)
        work[0, 1] = state
        work[1, 1] = context
        work[2, 1] = stack
        work[1, last] = 0
        uncertain[0] = 0
    num_stacks = stacks.shape[0] // 2
    while True:
        if node >= num_nodes:
            first = work[0, 1]
            dead = states[first, 0] == 1 and states[first, 1] < 0
            while root < roots.shape[0] and dead and rows[first, roots[root, 0]] == -1:
                root += 1
            if root == roots.shape[0]:
                break
            node = np.int64(roots[root, 1])
            num_nodes = np.int64(roots[root, 2])
            root += 1
            work[1, last] = root
        depth = trie[node, 3]
        byte = trie[node, 0]
        state = work[0, depth + 1]
        context = work[1, depth + 1]
        stack = work[2, depth + 1]
        if free + 64 >= num_stacks:
            work[0, 0] = node
            work[2, 0] = free
            return 5
        while True:
            if states[state, 0] == 0:
                work[0, 0] = node
                work[1, 0] = state
                work[2, 0] = free
                return 1
            target = rows[state, byte]
            if target >= 0:
                reach = states[target, 2]
                if reach >= 0:
                    live = contexts[context, 2]
                    if live >= 0 and not _meets(words, reach, live):
                        target = -1
                break
            if target == LAZY:
                work[0, 0] = node
                work[1, 0] = state
                work[0, last] = byte
                work[2, 0] = free
                return 3
            label = -1
            if target == -1:
                label = states[state, 1]
                if label < 0:
                    break
            else:
                label = -2 - target
            live = contexts[context, 2]
            if live >= 0 and not _has(words, live, label):
                target = -1
                break
            while True:
                offset = contexts[context, 1]
                after = -2
                if offset >= 0 and label < transitions[offset]:
                    after = transitions[offset + 1 + label]
                if after == -2:
                    work[0, 0] = node
                    work[1, 0] = context
                    work[0, last] = label
                    work[2, 0] = free
                    return 2
                if after > -3 or after <= -5:
                    break
                if stack == 0:
                    after = -1
                    break
                label = -3 - after
                context = stacks[2 * stack + 1]
                stack = stacks[2 * stack]
            if after == -1:
                target = -1
                break
            if after <= -5:
                push = -5 - after
                stacks[2 * free] = stack
                stacks[2 * free + 1] = pushes[2 * push + 1]
                stack = free
                free += 1
                after = pushes[2 * push]
            context = after
            state = contexts[context, 0]
            if target != -1:
                target = state
                break
            if state == 0:
                target = 0
                break
        if target == 0:
            count = uncertain[0] + 1
            if count == uncertain.shape[0]:
                work[0, 0] = node
                work[2, 0] = free
                return 4
            uncertain[0] = count
            uncertain[count] = node
            node = trie[node, 1]
        elif target < 0:
            node = trie[node, 1]
        else:
            token = trie[node, 2]
            if token >= 0:
                mask[token >> 5] |= np.int32(1) << np.int32(token & 31)
            node += 1
            if node < num_nodes and trie[node, 3] == depth + 1:
                work[0, depth + 2] = target
                work[1, depth + 2] = context
                work[2, depth + 2] = stack
    return 0 if uncertain[0] == 0 else 6

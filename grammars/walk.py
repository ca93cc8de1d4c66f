"""The compiled walk of the token trie against a machine: one mask."""

from __future__ import annotations

import numpy as np
from numba import njit

from .automaton import LAZY

DONE, NEED_ROW, NEED_TRANSITION, NEED_EDGE, MANY_UNCERTAIN = range(5)
"""What ``walk`` ended with: the mask; a state whose row is missing (``work[1, 0]``); a transition
that is missing (of context ``work[1, 0]`` by label ``work[0, -1]``); a row's entry that is missing
(of state ``work[1, 0]`` by byte ``work[0, -1]``); no more room for uncertain nodes. After the
latter ones, fill in what is missing and call it again: it goes on where it stopped."""

_SIGNATURE = (
    "int64(int32[:,::1], int32[:,::1], int32[:,::1], int32[:,::1], int32[::1], uint64[::1],"
    " int32[::1], int32[:,::1], int32[::1])"
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
def walk(trie, rows, states, contexts, transitions, words, mask, work, uncertain):  # type: ignore[no-untyped-def]
    """Set the bits of all tokens that a position allows.

    Args:
        trie: see ``trie.py``.
        rows, states, contexts, transitions, words: the machine's arrays.
        mask: int32[num_words], or-ed into.
        work: int32[2, max_token_len + 3]. ``work[:, d + 1]`` is the state and context at which
            depth d begins, so column 1 is the position that is asked about; ``work[0, 0]`` is the
            node to go on with and ``work[1, last]`` the node to stop at; ``work[1, 0]`` and
            ``work[0, last]`` say what is missing.
        uncertain: the nodes whose tokens depend on a text that is not known; entry 0 counts them.
    """
    node = work[0, 0]
    last = work.shape[1] - 1
    num_nodes = work[1, last]
    while node < num_nodes:
        depth = trie[node, 3]
        byte = trie[node, 0]
        state = work[0, depth + 1]
        context = work[1, depth + 1]
        target = -1
        while True:
            if states[state, 0] == 0:
                work[0, 0] = node
                work[1, 0] = state
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
            offset = contexts[context, 1]
            after = -2
            if offset >= 0 and label < transitions[offset]:
                after = transitions[offset + 1 + label]
            if after == -2:
                work[0, 0] = node
                work[1, 0] = context
                work[0, last] = label
                return 2
            if after < 0:
                target = -1
                break
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
    work[0, 0] = node
    return 0

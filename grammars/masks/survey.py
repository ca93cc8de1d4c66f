"""The compiled walk of the token trie inside one lexeme: which tokens stay in it, where it ends."""

from __future__ import annotations

import numpy as np

from ramet.grammars.pushdown.rows import DEAD, LAZY
from ramet.grammars.pushdown.stack_records import meets
from ramet.grammars.pushdown.tables import (
    DONE,
    END_LABEL,
    NAME_LABEL,
    NEED_EDGE,
    NEED_ROW,
    REACH,
    READY,
)
from ramet.jit import jit

MANY_FOUND, UNCERTAIN, MAY_END = 8, 9, 10
"""Statuses of a walk in addition to a transition's: the array of found nodes is full; the mask is
complete except for nodes that depend on an unknown text; it is complete, and the text may be
allowed to end here.

After all but the last two and ``DONE``, supply what is missing and call it again: it resumes.
"""

ROOT_BYTE, ROOT_NODE, ROOT_END, ROOT_STATE, ROOT_LABEL, ROOT_PREFIX = range(6)
"""Columns of a table of roots, the subtrees to walk: the first node's byte, that node, the end of
its subtree, the lexeme state before it (-1: the position's own), the label if the lexeme ends
before the byte (else -1), and where in a table of bytes the token's text before it is."""

TRIE, ROOTS, PREFIXES, MASK, ALIASES = range(5)
"""The arrays of a context-independent mask's table (see ``context_independent.py``)."""


@jit("int64(int32[:,::1], int64)")
def num_bytes(rows, state):  # type: ignore[no-untyped-def]
    """How many bytes a state's row allows."""
    count = 0
    for byte in range(256):
        count += rows[state, byte] >= 0
    return count


@jit(
    "int64(int32[:,::1], int32[:,::1], int64, int64, int64, uint64[::1], int64[::1],"
    " int32[:,::1], int32[:,::1], int32[::1], int32[::1], int64[::1], int32[:,::1])",
)
def survey(  # type: ignore[no-untyped-def]
    trie, roots, resume, state, live, words, frames, rows, states, mask, path, requested, found,
):  # fmt: skip
    """Set the bits of the tokens that stay inside a lexeme, and find where it ends.

    Args:
        trie, roots: what to walk; the roots at depth 0.
        resume: 1 to continue where the last call stopped.
        state, live: where all tokens begin; the live labels (see ``stack_records.py``).
        path: int32[longest token + 2]: the state at which each depth begins.
        requested: int64[5], written: what is missing, where to resume, and (never cleared) whether
            any bit was set that wasn't.
        found: int32[n, 3], written: nodes whose byte ends the lexeme, or comes after its end, or
            completes a name; each with the state before it, and the label if it comes after the
            end (else -1). Row 0 counts them.
    """
    node, num_nodes, root = np.int64(0), np.int64(0), np.int64(0)
    if resume:
        node, root = requested[2], requested[3]
        num_nodes = np.int64(roots[root - 1, ROOT_END])
    else:
        path[0] = state
        found[0, 0] = 0
    while True:
        if node >= num_nodes:
            dead = states[state, READY] == 1 and states[state, END_LABEL] < 0
            while root < roots.shape[0] and dead and rows[state, roots[root, 0]] == DEAD:
                root += 1
            if root == roots.shape[0]:
                return DONE
            node, num_nodes = np.int64(roots[root, ROOT_NODE]), np.int64(roots[root, ROOT_END])
            root += 1
            requested[3] = root
        depth = trie[node, 3]
        own = np.int64(path[depth])
        if states[own, READY] == 0:
            requested[0], requested[2] = own, node
            return NEED_ROW
        byte = trie[node, 0]
        target = np.int64(rows[own, byte])
        ends = target < DEAD
        if target == LAZY:
            requested[0], requested[1], requested[2] = own, byte, node
            return NEED_EDGE
        if target == DEAD:
            ends = states[own, END_LABEL] >= 0
        elif target >= 0:
            reach = np.int64(states[target, REACH])
            if reach >= 0:
                if live != -1 and not meets(words, frames, reach, live):
                    target = np.int64(DEAD)
                else:
                    ends = states[target, NAME_LABEL] >= 0
        if ends:
            count = found[0, 0] + 1
            if count == found.shape[0]:
                requested[2] = node
                return MANY_FOUND
            found[0, 0] = count
            found[count, 0], found[count, 1] = node, own
            found[count, 2] = states[own, END_LABEL] if target == DEAD else -1
            node = np.int64(trie[node, 1])
        elif target < 0:
            node = np.int64(trie[node, 1])
        else:
            token = trie[node, 2]
            if token >= 0:
                bit = np.int32(1) << np.int32(token & 31)
                if mask[token >> 5] & bit == 0:
                    mask[token >> 5] |= bit
                    requested[4] = 1
            node += 1
            path[depth + 1] = target

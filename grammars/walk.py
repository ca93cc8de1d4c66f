"""The compiled walks of the token trie: one mask.

``survey`` looks at a lexeme alone: which tokens stay inside it, and where in the trie it ends.
``walk`` goes on from there through contexts.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from .automaton import DEAD, LAZY
from .moves import (
    ASKED,
    ASKED_TOO,
    BEGIN,
    CONTEXT,
    CONTEXT_KIND,
    DONE,
    END_LABEL,
    KEY,
    LENGTH,
    LIVE_AT,
    MACHINE_TYPES,
    NAME_LABEL,
    NEED_EDGE,
    NEED_FRAMES,
    NEED_ROW,
    PENDING,
    REACH,
    READY,
    STACK,
    START,
    UNKNOWN,
    USED,
    cross,
    move,
)
from .records import is_live, meets

MANY_FOUND, UNDECIDED = 8, 9
"""What a walk may end with beside a move's statuses: there is no more room for nodes that were
found; the mask is complete but for the nodes that depend on a text that isn't known.

After all but ``DONE`` and ``UNDECIDED``, help out and call it again: it goes on where it stopped.
"""

ROOT_BYTE, ROOT_NODE, ROOT_END, ROOT_STATE, ROOT_PREFIX = range(5)
"""Columns of a table of roots, the subtrees to walk: the first node's byte, that node, the end of
its subtree, the lexeme state before it (-1: the position's own), and where in a table of bytes the
token's text before it is."""


_AT_A_ROOT = 1 << 60


@njit(
    "int64(int32[:,::1], int32[:,::1], int64, int64, int64, uint64[::1], int64[::1],"
    " int32[:,::1], int32[:,::1], int32[::1], int32[::1], int64[::1], int32[:,::1])",
    cache=True,
    nogil=True,
)
def survey(  # type: ignore[no-untyped-def]
    trie, roots, resume, state, live, words, frames, rows, states, mask, path, asked, found,
):  # fmt: skip
    """Set the bits of the tokens that stay inside a lexeme, and find where it ends.

    Args:
        trie, roots: what to walk; the roots at depth 0.
        resume: 1 to go on where the last call stopped.
        state, live: where all tokens begin; the labels that are live (see ``records.py``).
        path: int32[longest token + 2]: the state at which each depth begins.
        asked: int64[4], written: what is missing, then where to go on.
        found: int32[n, 2], written: nodes whose byte ends the lexeme, or comes after its end, or
            completes a name; each with the state before it. Row 0 counts them.
    """
    node, num_nodes, root = np.int64(0), np.int64(0), np.int64(0)
    if resume:
        node, root = asked[2], asked[3]
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
            asked[3] = root
        depth = trie[node, 3]
        own = np.int64(path[depth])
        if states[own, READY] == 0:
            asked[0], asked[2] = own, node
            return NEED_ROW
        byte = trie[node, 0]
        target = np.int64(rows[own, byte])
        ends = target < DEAD
        if target == LAZY:
            asked[0], asked[1], asked[2] = own, byte, node
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
                asked[2] = node
                return MANY_FOUND
            found[0, 0] = count
            found[count, 0], found[count, 1] = node, own
            node = np.int64(trie[node, 1])
        elif target < 0:
            node = np.int64(trie[node, 1])
        else:
            token = trie[node, 2]
            if token >= 0:
                mask[token >> 5] |= np.int32(1) << np.int32(token & 31)
            node += 1
            path[depth + 1] = target


@njit(
    "int64(int32[:,::1], int32[:,::1], uint8[::1], int64, int64, int64[:,::1], int64, int32[::1],"
    f" int32[:,::1], int32[::1], int64[:,::1], int32[::1], {MACHINE_TYPES})",
    cache=True,
    nogil=True,
)
def walk(  # type: ignore[no-untyped-def]
    trie, roots, prefixes, resume, own, positions, at, inside, aliases, mask, work, uncertain,
    frames, text, rows, states, contexts, transitions, words, pushes, plans,
):  # fmt: skip
    """Write the mask of all tokens that a position allows, but for those that end the text.

    Args:
        trie, roots, prefixes: see ``trie.py`` and ``ROOT_BYTE``.
        resume: 1 to go on where the last call stopped.
        own: the position's state, or one with the same mask.
        positions, at: the position is ``positions[at]``; what is asked is written to the next.
        inside: int32[num_words]: tokens that are allowed and under no root.
        aliases: int32[n, 2]: pairs of a token of the trie and another one with the same bytes.
        mask: int32[num_words or more], written.
        work: int64[6, max_token_len + 3]. ``work[:, d + 1]`` is the state, context, stack, live
            labels, lexeme's beginning and free word at which depth d begins; column 0 is where to
            go on.
        uncertain: the nodes whose tokens depend on a text that isn't known; entry 0 counts them.
    """
    before, asks = positions[at], positions[at + 1]
    length = before[LENGTH]
    node, num_nodes, root = np.int64(0), np.int64(0), np.int64(0)
    if resume:
        node, root = work[0, 0], work[1, 0]
        num_nodes = np.int64(roots[root - 1, ROOT_END])
    else:
        uncertain[0] = 0
        mask[: inside.shape[0]] = inside
        mask[inside.shape[0] :] = 0
    # At many roots the lexeme ends by one label. Where that leads is found once, unless it depends
    # on the text.
    own_context = before[CONTEXT]
    is_shared = contexts[own_context, CONTEXT_KIND] != KEY
    known_label, known_state, known_context = np.int64(-1), np.int64(0), np.int64(0)
    known_stack, known_live, known_free = np.int64(0), np.int64(0), np.int64(0)
    while True:
        while node >= num_nodes:
            if root == roots.shape[0]:
                for i in range(aliases.shape[0]):
                    token, other = aliases[i, 0], aliases[i, 1]
                    if mask[token >> 5] >> np.int32(token & 31) & 1:
                        mask[other >> 5] |= np.int32(1) << np.int32(other & 31)
                return DONE if uncertain[0] == 0 else UNDECIDED
            byte = roots[root, ROOT_BYTE]
            state = np.int64(roots[root, ROOT_STATE])
            if state < 0:
                state = own
            label, target = np.int64(-1), np.int64(LAZY)
            if states[state, READY]:
                target = np.int64(rows[state, byte])
                if target == DEAD:
                    label = np.int64(states[state, END_LABEL])
                    if label < 0:
                        root += 1
                        continue
                elif target < DEAD and target != LAZY:
                    label = -2 - target
            shared = label >= 0 and is_shared
            if shared and label != known_label:
                known_label, known_state = label, np.int64(-1)
                live = before[LIVE_AT]
                if live == -1 or is_live(words, frames, live, label):
                    (
                        status, known_context, known_stack, known_live, known_free, asked, asked_too
                    ) = cross(
                        own_context, before[STACK], label, before[BEGIN], length, before[USED],
                        UNKNOWN, frames, text, contexts, transitions, words, pushes, plans,
                    )  # fmt: skip
                    if DONE < status <= NEED_FRAMES:
                        work[0, 0], work[1, 0] = _AT_A_ROOT, root
                        asks[ASKED], asks[ASKED_TOO] = asked, asked_too
                        return status
                    if status == DONE:
                        known_state = np.int64(contexts[known_context, START])
            if shared and (
                known_state < 0
                or (
                    target == DEAD
                    and known_state != PENDING
                    and states[known_state, READY]
                    and rows[known_state, byte] == DEAD
                    and states[known_state, END_LABEL] < 0
                )
            ):
                root += 1
                continue
            node, num_nodes = np.int64(roots[root, ROOT_NODE]), np.int64(roots[root, ROOT_END])
            depth = np.int64(trie[node, 3])
            root += 1
            work[1, 0] = root
            context, stack, live = own_context, before[STACK], before[LIVE_AT]
            begin, free = before[BEGIN], before[USED]
            if shared:
                state, context, stack, live = known_state, known_context, known_stack, known_live
                begin, free = length + depth, known_free
                if known_state == PENDING:
                    count = uncertain[0] + 1
                    if count == uncertain.shape[0]:
                        work[0, 0], work[1, 0] = _AT_A_ROOT, root - 1
                        return MANY_FOUND
                    uncertain[0] = count
                    uncertain[count] = node
                    node = num_nodes
                    continue
                if target != DEAD:
                    token = trie[node, 2]
                    if token >= 0:
                        mask[token >> 5] |= np.int32(1) << np.int32(token & 31)
                    node += 1
                    depth += 1
                    begin += 1
            else:
                prefix = roots[root - 1, ROOT_PREFIX]
                for i in range(depth):
                    text[length + i] = prefixes[prefix + i]
            work[0, depth + 1], work[1, depth + 1], work[2, depth + 1] = state, context, stack
            work[3, depth + 1], work[4, depth + 1], work[5, depth + 1] = live, begin, free
        depth = np.int64(trie[node, 3])
        byte = trie[node, 0]
        state, context, stack = work[0, depth + 1], work[1, depth + 1], work[2, depth + 1]
        live, begin, free = work[3, depth + 1], work[4, depth + 1], work[5, depth + 1]
        text[length + depth] = byte
        is_plain = False
        if states[state, READY]:
            target = np.int64(rows[state, byte])
            if target == DEAD and states[state, END_LABEL] < 0:
                node = np.int64(trie[node, 1])
                continue
            if target >= 0:
                reach = np.int64(states[target, REACH])
                is_plain = reach < 0 or live == -1
                if not is_plain and states[target, NAME_LABEL] < 0:
                    if not meets(words, frames, reach, live):
                        node = np.int64(trie[node, 1])
                        continue
                    is_plain = True
        if is_plain:
            state = target
        else:
            status, state, context, stack, live, begin, free, asked, asked_too, _ = move(
                byte, length + depth, state, context, stack, live, begin, free, UNKNOWN, 0,
                frames, text, rows, states, contexts, transitions, words, pushes, plans,
            )  # fmt: skip
            if DONE < status <= NEED_FRAMES:
                work[0, 0] = node
                asks[ASKED], asks[ASKED_TOO] = asked, asked_too
                return status
            if status != DONE:
                node = np.int64(trie[node, 1])
                continue
            if state == PENDING:
                count = uncertain[0] + 1
                if count == uncertain.shape[0]:
                    work[0, 0] = node
                    return MANY_FOUND
                uncertain[0] = count
                uncertain[count] = node
                node = np.int64(trie[node, 1])
                continue
        token = trie[node, 2]
        if token >= 0:
            mask[token >> 5] |= np.int32(1) << np.int32(token & 31)
        node += 1
        if node < num_nodes and trie[node, 3] == depth + 1:
            work[0, depth + 2], work[1, depth + 2], work[2, depth + 2] = state, context, stack
            work[3, depth + 2], work[4, depth + 2], work[5, depth + 2] = live, begin, free

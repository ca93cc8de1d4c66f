"""Fills a token mask: the compiled walk of the token trie, past a lexeme's end through contexts."""

from __future__ import annotations

import numpy as np

from ramet.grammars.pushdown.lexeme_exits import cross
from ramet.grammars.pushdown.pointers import int32_table, int32s, uint8s, uint64s
from ramet.grammars.pushdown.rows import DEAD, LAZY
from ramet.grammars.pushdown.stack_records import FIRST_NAME, NAMES, WHAT, is_live, meets
from ramet.grammars.pushdown.tables import (
    BEGIN,
    CAPTURES,
    CONTEXT,
    CONTEXT_KIND,
    CONTEXTS,
    DONE,
    END_LABEL,
    IS_END,
    KEY,
    LENGTH,
    LIVE_AT,
    NAME_LABEL,
    NEED_FRAMES,
    NEED_ROW,
    NEED_TEXT,
    NUM_CONTEXT_COLUMNS,
    NUM_STATE_COLUMNS,
    PENDING,
    PLANS,
    REACH,
    READY,
    REQUESTED,
    REQUESTED_DETAIL,
    REQUESTED_END,
    ROWS,
    STACK,
    START,
    STATES,
    UNDECIDED,
    UNKNOWN,
    USED,
    WORDS,
)
from ramet.grammars.pushdown.transitions import advance_byte
from ramet.jit import jit

from .survey import (
    ALIASES,
    MANY_FOUND,
    MASK,
    MAY_END,
    PREFIXES,
    ROOT_BYTE,
    ROOT_END,
    ROOT_LABEL,
    ROOT_NODE,
    ROOT_PREFIX,
    ROOT_STATE,
    ROOTS,
    TRIE,
    UNCERTAIN,
)

_AT_A_ROOT = 1 << 60
WORK_SUPPLIED = 2
"""The column of row 0 of ``work`` with what the pushdown table answered for a text; else
``UNKNOWN``."""

_WITH_TEXT = 1 << 32
"""Added to a label: what follows was requested with the text."""


@jit(
    "int64(int64[::1], int64, int64, int64[:,::1], int64, int32[::1], int64[:,::1], int32[::1],"
    " int64[::1], uint8[::1], int64[::1])",
)
def fill_mask(  # type: ignore[no-untyped-def]
    part, resume, own, positions, at, mask, work, uncertain, frames, text, pushdown
):
    """Writes the mask of all tokens that a position allows, but for those that end the text.

    Args:
        part: the table of the tokens that are allowed and under no root (int32[num_words]), the
            trie and the roots to walk, and the pairs of tokens with the same bytes.
        resume: 1 to continue where the last call stopped.
        own: the position's state, or one with the same mask; its row is ready.
        positions, at: the position is ``positions[at]``; a request is written to the next row.
        mask: int32[num_words or more], written.
        work: int64[max_token_len + 3, 6]. ``work[d + 1]`` is the state, context, stack, live
            labels, lexeme's beginning and free word at which depth d begins; row 0 is where to
            continue, and what was supplied for a text (else ``UNKNOWN``).
        uncertain: the nodes whose tokens depend on a text that isn't known; entry 0 counts them.
        frames, text, pushdown: see ``transitions.py``.
    """
    trie, roots = int32_table(part, TRIE, 4), int32_table(part, ROOTS, 6)
    rows = int32_table(pushdown, ROWS, 256)
    states = int32_table(pushdown, STATES, NUM_STATE_COLUMNS)
    contexts = int32_table(pushdown, CONTEXTS, NUM_CONTEXT_COLUMNS)
    words, plans = uint64s(pushdown, WORDS), int32s(pushdown, PLANS)
    before, request = positions[at], positions[at + 1]
    length, num_roots = before[LENGTH], roots.shape[0]
    node, num_nodes, root = np.int64(0), np.int64(0), np.int64(0)
    supplied = np.int64(UNKNOWN)
    if resume:
        node, root, supplied = work[0, 0], work[0, 1], work[0, WORK_SUPPLIED]
        if node != _AT_A_ROOT:
            num_nodes = np.int64(roots[root - 1, ROOT_END])
    else:
        uncertain[0] = 0
        ready = int32s(part, MASK)
        mask[: ready.shape[0]] = ready
        mask[ready.shape[0] :] = 0
    own_row, own_goes_on = rows[own], states[own, END_LABEL] < 0
    # At many roots the lexeme ends by one label. Where that leads is found once, unless it depends
    # on the text; ``known_passes``: what its row refuses is refused.
    own_context = before[CONTEXT]
    is_shared = contexts[own_context, CONTEXT_KIND] != KEY
    captures = contexts[own_context, CAPTURES] != 0
    known_label, known_state, known_context = np.int64(-1), np.int64(0), np.int64(0)
    known_stack, known_live, known_free = np.int64(0), np.int64(0), np.int64(0)
    known_row, known_passes, is_undecided = rows[0], False, False
    while True:
        while node >= num_nodes:
            if own_goes_on:
                while (
                    root < num_roots
                    and roots[root, ROOT_STATE] < 0
                    and own_row[roots[root, ROOT_BYTE]] == DEAD
                ):
                    root += 1
            if known_passes:
                while (
                    root < num_roots
                    and roots[root, ROOT_LABEL] == known_label
                    and known_row[roots[root, ROOT_BYTE]] == DEAD
                ):
                    root += 1
            if root == num_roots:
                aliases = int32_table(part, ALIASES, 2)
                for i in range(aliases.shape[0]):
                    token, other = aliases[i, 0], aliases[i, 1]
                    if mask[token >> 5] >> np.int32(token & 31) & 1:
                        mask[other >> 5] |= np.int32(1) << np.int32(other & 31)
                if uncertain[0] != 0:
                    return UNCERTAIN
                may_end = contexts[own_context, IS_END] != 0
                if not own_goes_on and not may_end:
                    may_end = states[own, END_LABEL] != known_label or (
                        known_state >= 0
                        and (contexts[known_context, IS_END] or states[known_state, END_LABEL] >= 0)
                    )
                return MAY_END if may_end else DONE
            byte = roots[root, ROOT_BYTE]
            state = np.int64(roots[root, ROOT_STATE])
            if state < 0:
                state = own
            label, target = np.int64(-1), np.int64(rows[state, byte])
            if target == DEAD:
                label = np.int64(states[state, END_LABEL])
            elif target < DEAD and target != LAZY:
                label = -2 - target
            shared = label >= 0 and is_shared
            depth = np.int64(trie[roots[root, ROOT_NODE], 3])
            # Where a lexeme ends right here, its whole text is known.
            has_text = captures and depth == 0
            if (
                shared
                and (label != known_label or (has_text and is_undecided))
                and not (has_text and known_label == label + _WITH_TEXT)
            ):
                known_label = label if supplied == UNKNOWN else label + _WITH_TEXT
                known_state, is_undecided = np.int64(-1), False
                known_row, known_passes = rows[0], True
                live = before[LIVE_AT]
                if live == -1 or is_live(words, frames, live, label):
                    (
                        status, known_context, known_stack, known_live, known_free,
                        requested, detail,
                    ) = cross(
                        own_context, before[STACK], label, before[BEGIN], length, before[USED],
                        supplied, frames, text, pushdown,
                    )  # fmt: skip
                    if DONE < status <= NEED_FRAMES:
                        work[0, 0], work[0, 1], work[0, WORK_SUPPLIED] = _AT_A_ROOT, root, supplied
                        request[REQUESTED], request[REQUESTED_DETAIL] = requested, detail
                        return status
                    if status == DONE:
                        known_state = np.int64(contexts[known_context, START])
                        if states[known_state, READY] == 0:
                            work[0, 0], work[0, 1], work[0, WORK_SUPPLIED] = (
                                _AT_A_ROOT,
                                root,
                                supplied,
                            )
                            request[REQUESTED] = known_state
                            return NEED_ROW
                        known_row = rows[known_state]
                        known_passes = known_state != PENDING and states[known_state, END_LABEL] < 0
                        is_undecided = contexts[known_context, CONTEXT_KIND] == UNDECIDED
                may_follow = target != DEAD or not known_passes or known_row[byte] != DEAD
                if is_undecided and has_text and supplied == UNKNOWN and may_follow:
                    work[0, 0], work[0, 1] = _AT_A_ROOT, root
                    request[REQUESTED], request[REQUESTED_DETAIL] = own_context, label
                    request[BEGIN], request[REQUESTED_END] = before[BEGIN], length
                    if target != DEAD:
                        text[length] = byte
                        request[REQUESTED_END] += 1
                    return NEED_TEXT
                supplied = np.int64(UNKNOWN)
            if (target == DEAD and label < 0) or (
                shared
                and (
                    known_state < 0 or (target == DEAD and known_passes and known_row[byte] == DEAD)
                )
            ):
                root += 1
                continue
            node, num_nodes = np.int64(roots[root, ROOT_NODE]), np.int64(roots[root, ROOT_END])
            root += 1
            work[0, 1], work[0, WORK_SUPPLIED] = root, UNKNOWN
            context, stack, live = own_context, before[STACK], before[LIVE_AT]
            begin, free = before[BEGIN], before[USED]
            if shared and is_undecided and captures and known_label == label:
                shared = False  # The text that the token itself adds decides.
            if shared:
                state, context, stack, live = known_state, known_context, known_stack, known_live
                begin, free = length + depth, known_free
                if is_undecided:
                    count = uncertain[0] + 1
                    if count == uncertain.shape[0]:
                        work[0, 0], work[0, 1] = _AT_A_ROOT, root - 1
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
                    if node == num_nodes:
                        continue
            else:
                prefixes, prefix = uint8s(part, PREFIXES), roots[root - 1, ROOT_PREFIX]
                for i in range(depth):
                    text[length + i] = prefixes[prefix + i]
            first = work[depth + 1]
            first[0], first[1], first[2] = state, context, stack
            first[3], first[4], first[5] = live, begin, free
        depth = np.int64(trie[node, 3])
        byte = trie[node, 0]
        place = work[depth + 1]
        state = place[0]
        target = np.int64(LAZY)
        if states[state, READY]:
            target = np.int64(rows[state, byte])
            if target == DEAD and states[state, END_LABEL] < 0:
                node = np.int64(trie[node, 1])
                continue
        context, stack, live, begin, free = place[1], place[2], place[3], place[4], place[5]
        text[length + depth] = byte
        is_plain = False
        if target >= 0:
            reach = np.int64(states[target, REACH])
            if reach < 0 or live == -1:
                is_plain = True
            elif not meets(words, frames, reach, live):
                node = np.int64(trie[node, 1])
                continue
            else:
                # A name that is complete may have been there before.
                label = np.int64(states[target, NAME_LABEL])
                if (
                    label < 0
                    or contexts[context, CONTEXT_KIND] != KEY
                    or frames[stack + NAMES] == 0
                    or label >= plans[frames[stack + WHAT] + FIRST_NAME]
                ):
                    is_plain = True
        if is_plain:
            state = target
        else:
            (
                status, state, context, stack, live, begin, free, requested, detail, text_end
            ) = advance_byte(
                byte, length + depth, state, context, stack, live, begin, free, supplied, 0,
                frames, text, pushdown,
            )  # fmt: skip
            if DONE < status <= NEED_FRAMES:
                # The transition is made again from its beginning, with what is supplied for a text.
                work[0, 0], work[0, WORK_SUPPLIED] = node, supplied
                request[REQUESTED], request[REQUESTED_DETAIL] = requested, detail
                request[REQUESTED_END], request[BEGIN] = text_end, begin
                return status
            supplied = np.int64(UNKNOWN)
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
            below = work[depth + 2]
            below[0], below[1], below[2] = state, context, stack
            below[3], below[4], below[5] = live, begin, free

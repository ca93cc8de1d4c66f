"""Transitions of a position by one byte, in compiled code.

A position is a lexeme state, a context, a stack of records, the live labels, and where the current
lexeme began. What a pushdown table has not computed yet ends a transition with a status that
requests it; after ``PushdownTable.supply`` the transition is made again.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ramet.jit import jit

from .lexeme_exits import WHERE, cross
from .pointers import int32_table, int32s, uint64s
from .rows import DEAD, LAZY
from .seen_keys import is_taken
from .stack_records import (
    FIRST_NAME,
    NAMES,
    WHAT,
    is_live,
    meets,
)
from .tables import (
    BEGIN,
    CAPTURES,
    CONTEXT,
    CONTEXT_KIND,
    CONTEXTS,
    DONE,
    END_LABEL,
    KEY,
    LENGTH,
    LIVE_AT,
    NAME_LABEL,
    NEED_EDGE,
    NEED_FRAMES,
    NEED_ROW,
    NEED_TEXT,
    NUM_CONTEXT_COLUMNS,
    NUM_STATE_COLUMNS,
    PENDING,
    PLANS,
    REACH,
    READY,
    REFUSED,
    REQUESTED,
    REQUESTED_DETAIL,
    REQUESTED_END,
    ROWS,
    STACK,
    START,
    STATE,
    STATES,
    UNDECIDED,
    UNKNOWN,
    UNSURE,
    USED,
    WORDS,
)


@njit(inline="always")
def _may_go_on(rows, states, start, byte):  # type: ignore[no-untyped-def]
    """Whether an undecided context's lexeme may continue with a byte, or end before it."""
    return (
        start == PENDING
        or states[start, READY] == 0
        or states[start, END_LABEL] >= 0
        or rows[start, byte] != DEAD
    )


@jit(
    f"UniTuple(int64, 10)(int64, int64, int64, int64, int64, int64, int64, int64, int64, int64,"
    f" {WHERE})",
)
def advance_byte(  # type: ignore[no-untyped-def]
    byte, at, state, context, stack, live, begin, free, supplied, with_text,
    frames, text, pushdown,
):  # fmt: skip
    """The position after a byte at ``text[at]``.

    A transition that depends on the text is requested from the pushdown table, which returns it as
    ``supplied``: with ``with_text`` wherever a context captures it, else only where the transition
    for an unknown text is undecided.

    Returns:
        The status, the state, the context, the stack, the live labels, the beginning of the
        lexeme, the free word, and three words of a request. With a request, the position is still
        before the byte, though perhaps in a later context.
    """
    rows = int32_table(pushdown, ROWS, 256)
    states = int32_table(pushdown, STATES, NUM_STATE_COLUMNS)
    contexts = int32_table(pushdown, CONTEXTS, NUM_CONTEXT_COLUMNS)
    words, plans = uint64s(pushdown, WORDS), int32s(pushdown, PLANS)
    requested, detail, end = np.int64(0), np.int64(0), np.int64(at)
    while True:
        if state == UNSURE:
            return DONE, np.int64(PENDING), context, stack, live, begin, free, 0, 0, 0
        if states[state, READY] == 0:
            return NEED_ROW, state, context, stack, live, begin, free, state, 0, 0
        target = np.int64(rows[state, byte])
        if target >= 0:
            reach = np.int64(states[target, REACH])
            if reach >= 0 and live != -1:
                if not meets(words, frames, reach, live):
                    return REFUSED, state, context, stack, live, begin, free, 0, 0, 0
                label = np.int64(states[target, NAME_LABEL])
                if label >= 0 and contexts[context, CONTEXT_KIND] == KEY:
                    names = frames[stack + NAMES]
                    if names != 0 and label < plans[frames[stack + WHAT] + FIRST_NAME]:
                        if free + 4 + ((at - begin) >> 3) > frames.shape[0]:
                            return NEED_FRAMES, state, context, stack, live, begin, free, 0, 0, 0
                        if is_taken(text, begin, at, frames, names, free):
                            return REFUSED, state, context, stack, live, begin, free, 0, 0, 0
            return DONE, target, context, stack, live, begin, free, 0, 0, 0
        if target == LAZY:
            return NEED_EDGE, state, context, stack, live, begin, free, state, byte, 0
        if target == DEAD:
            label = np.int64(states[state, END_LABEL])
            end = np.int64(at)
        else:
            label = -2 - target
            end = np.int64(at + 1)
        if label < 0 or (live != -1 and not is_live(words, frames, live, label)):
            return REFUSED, state, context, stack, live, begin, free, 0, 0, 0
        if with_text and supplied == UNKNOWN and contexts[context, CAPTURES]:
            return NEED_TEXT, state, context, stack, live, begin, free, context, label, end
        status, after, above, lives, used, requested, detail = cross(
            context, stack, label, begin, end, free, supplied,
            frames, text, pushdown,
        )  # fmt: skip
        if status != DONE:
            return (
                status,
                state,
                context,
                stack,
                live,
                begin,
                free,
                requested,
                detail,
                end,
            )
        start = np.int64(contexts[after, START])
        if contexts[after, CONTEXT_KIND] == UNDECIDED:
            if target == DEAD and not _may_go_on(rows, states, start, byte):
                return REFUSED, state, context, stack, live, begin, free, 0, 0, 0
            if supplied == UNKNOWN and contexts[context, CAPTURES]:
                return NEED_TEXT, state, context, stack, live, begin, free, context, label, end
            start = np.int64(PENDING)
        context, stack, live, free = after, above, lives, used
        supplied = np.int64(UNKNOWN)
        state, begin = start, end
        if target != DEAD or state == PENDING:
            return DONE, state, context, stack, live, begin, free, 0, 0, 0


@jit(
    f"int64(int64[:,::1], int64, uint8[::1], int64[:,::1], int64, int64, int64, {WHERE})",
)
def advance(  # type: ignore[no-untyped-def]
    positions, at, data, spans, index, resume, supplied,
    frames, text, pushdown,
):  # fmt: skip
    """Writes the position after some bytes to ``positions[at + 1]``.

    ``spans[index]`` is their range in ``data``: the first, and the one past the last.

    With a request, that row holds the progress so far; call again with ``resume``.
    ``text`` has room for the data.
    """
    row = at + 1 if resume else at
    first, last = spans[index, 0], spans[index, 1]
    length = positions[at, LENGTH]
    state, context, stack = positions[row, STATE], positions[row, CONTEXT], positions[row, STACK]
    live, begin = positions[row, LIVE_AT], positions[row, BEGIN]
    here, free = positions[row, LENGTH], positions[row, USED]
    requested, detail, end = np.int64(0), np.int64(0), np.int64(0)
    status = np.int64(DONE)
    for i in range(first + here - length, last):
        text[length + i - first] = data[i]
        status, state, context, stack, live, begin, free, requested, detail, end = advance_byte(
            data[i], length + i - first, state, context, stack, live, begin, free, supplied, 1,
            frames, text, pushdown,
        )  # fmt: skip
        if status != DONE:
            break
        supplied = np.int64(UNKNOWN)
        here += 1
    if status == DONE and state == PENDING:
        status = np.int64(REFUSED)
    after = positions[at + 1]
    after[STATE], after[CONTEXT], after[STACK] = state, context, stack
    after[LIVE_AT], after[BEGIN], after[LENGTH], after[USED] = live, begin, here, free
    after[REQUESTED], after[REQUESTED_DETAIL], after[REQUESTED_END] = (
        requested,
        detail,
        end,
    )
    return status


@jit(
    f"int64(int64[:,::1], int64, int64, {WHERE})",
)
def leave(  # type: ignore[no-untyped-def]
    positions, at, supplied,
    frames, text, pushdown,
):  # fmt: skip
    """Ends the lexeme at ``positions[at]`` and writes the position to the next row.

    It is refused where the lexeme can't end without a further byte.
    """
    states = int32_table(pushdown, STATES, NUM_STATE_COLUMNS)
    contexts = int32_table(pushdown, CONTEXTS, NUM_CONTEXT_COLUMNS)
    words = uint64s(pushdown, WORDS)
    before, after = positions[at], positions[at + 1]
    for i in range(before.shape[0]):
        after[i] = before[i]
    state, context, live = before[STATE], before[CONTEXT], before[LIVE_AT]
    if states[state, READY] == 0:
        after[REQUESTED] = state
        return NEED_ROW
    label = np.int64(states[state, END_LABEL])
    if label < 0 or (live != -1 and not is_live(words, frames, live, label)):
        return REFUSED
    if supplied == UNKNOWN and contexts[context, CAPTURES]:
        after[REQUESTED], after[REQUESTED_DETAIL], after[REQUESTED_END] = (
            context,
            label,
            before[LENGTH],
        )
        return NEED_TEXT
    status, context, stack, live, free, requested, detail = cross(
        context, before[STACK], label, before[BEGIN], before[LENGTH], before[USED], supplied,
        frames, text, pushdown,
    )  # fmt: skip
    after[REQUESTED], after[REQUESTED_DETAIL] = requested, detail
    if status == DONE:
        after[STATE], after[CONTEXT], after[STACK] = contexts[context, START], context, stack
        after[LIVE_AT], after[BEGIN], after[USED] = live, before[LENGTH], free
    return status

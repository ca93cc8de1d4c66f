"""How a position moves by one byte, in compiled code.

A position is a lexeme state, a context, a stack of records, the live labels, and where the current
lexeme began. What a pushdown table has not worked out yet ends a move with a status that asks for
it; after ``PushdownTable.supply`` the move is made again.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ramet.jit import jit

from .pointers import int32_table, int32s, uint64s
from .rows import DEAD, LAZY
from .seen_keys import is_taken, read_name
from .stack_records import (
    AFTER_CONTEXT,
    AFTER_ITEM,
    ARRAY,
    BELOW,
    COUNT,
    FIRST_NAME,
    ITEM_CONTEXT,
    ITEM_HIGH,
    ITEM_LOW,
    KEY_CONTEXT,
    KIND,
    LABEL,
    NAMES,
    NUM_WORDS,
    OBJECT,
    PREFIX_LEN,
    SEEN,
    WHAT,
    find_live,
    is_live,
    live_names,
    meets,
    object_size,
)

DONE, NEED_ROW, NEED_TRANSITION, NEED_EDGE, NEED_TEXT, NEED_FRAMES, REFUSED = range(7)
"""What a move ended with; "asked" are the last entries of what it returns.

- ``NEED_ROW``: the row of state asked[0] is missing.
- ``NEED_TRANSITION``: context asked[0]'s transition by label asked[1] is missing.
- ``NEED_EDGE``: the entry of state asked[0]'s row for byte asked[1] is missing.
- ``NEED_TEXT``: what comes after context asked[0] by label asked[1] depends on the lexeme's text,
  which ends before asked[2].
- ``NEED_FRAMES``: there is no more room for records.
- ``REFUSED``: the byte isn't allowed.
"""

# Columns of ``PushdownTable.states``.
READY, END_LABEL, REACH, ROOM, ROOM_LABEL, SLICE, NAME_LABEL = range(7)

# Columns of ``PushdownTable.contexts``.
START, TRANSITIONS, LIVE, IS_END, CONTEXT_KIND, CAPTURES = range(6)

# Columns of a sequence's positions.
STATE, CONTEXT, STACK, LIVE_AT, BEGIN, LENGTH, USED, ASKED, ASKED_TOO, ASKED_END = range(10)
"""``LENGTH`` is that of the text so far, ``USED`` the words of records that are written."""

PLAIN, KEY, AFTER_PROPERTY, AFTER_ITEMS, LOCAL, UNDECIDED = range(6)
"""Kinds of contexts. Those in the middle have a record on top of the stack that says what follows.
A ``LOCAL`` value was pushed: by its labels from ``_CLOSE_ITEMS`` up, it pops. What follows an
``UNDECIDED`` one depends on a text: its lexeme, unless it is ``PENDING``, has all that may."""

ROWS, STATES, CONTEXTS, TRANSITIONS_OF, WORDS, PUSHES, PLANS = range(7)
"""The arrays of a pushdown table's table (see ``pointers.py``), as it and its state table describe
them."""

NUM_STATE_COLUMNS, NUM_CONTEXT_COLUMNS = 7, 6

UNKNOWN = -2
"""A transition that has not been asked for."""

POPPED, PUSHED = -3, -5
"""Transitions: ``POPPED - label`` pops, ``PUSHED - i`` pushes the i-th of
``PushdownTable.pushes``."""

PENDING, UNSURE = 0, 1
"""The lexeme states that stand for "depends on a text that isn't known": whether the text may come
so far, or whether any further byte may."""

_CLOSED = 1
"""The label of a pop where the array's bracket came in place of its first item; else it is 0."""

_CLOSE_ITEMS = 2
"""The label of a local value in whose place the array's bracket came; those above end a scalar."""

_WHERE = "int64[::1], uint8[::1], int64[::1]"
"""The types of what all these functions end with: a sequence's frames and text, and the pushdown
table's table."""


@njit(inline="always")
def _after(contexts, transitions, context, label):  # type: ignore[no-untyped-def]
    offset = contexts[context, TRANSITIONS]
    if offset < 0 or label >= transitions[offset]:
        return UNKNOWN
    return np.int64(transitions[offset + 1 + label])


@jit(
    f"UniTuple(int64, 7)(int64, int64, int64, int64, int64, int64, int64, {_WHERE})",
)
def cross(  # type: ignore[no-untyped-def]
    context, stack, label, begin, end, free, given, frames, text, pushdown
):  # fmt: skip
    """What comes after the lexeme ``text[begin:end]`` has ended with a live label.

    Args:
        free: the first free word of ``frames``.
        given: the transition, where the pushdown table was asked with the text; else ``UNKNOWN``.

    Returns:
        The status, the context, the stack, the live labels, the free word, and two that are asked.
    """
    contexts = int32_table(pushdown, CONTEXTS, NUM_CONTEXT_COLUMNS)
    transitions, plans = int32s(pushdown, TRANSITIONS_OF), int32s(pushdown, PLANS)
    words, pushes = uint64s(pushdown, WORDS), int32s(pushdown, PUSHES)
    kind = contexts[context, CONTEXT_KIND]
    room = frames.shape[0]
    after = np.int64(UNKNOWN)
    if kind == KEY and label != 0:
        names = np.int64(plans[frames[stack + WHAT] + KEY_CONTEXT])
        child = _after(contexts, transitions, names, label)
        if child == UNKNOWN:
            return NEED_TRANSITION, context, stack, -1, free, names, label
        if child < 0:
            return REFUSED, context, stack, -1, free, 0, 0
        size = object_size(frames, plans, stack)
        if free + size + 3 + ((end - begin) >> 3) > room:
            return NEED_FRAMES, context, stack, -1, free, 0, 0
        for i in range(SEEN + plans[frames[stack + WHAT] + NUM_WORDS]):
            frames[free + i] = frames[stack + i]
        frames[free + LABEL] = label
        top = free
        free += size
        if label < plans[frames[stack + WHAT] + FIRST_NAME]:
            frames[free] = frames[stack + NAMES]
            frames[top + NAMES] = free
            free += read_name(text, begin, end, frames, free)
        return DONE, child, top, contexts[child, LIVE], free, 0, 0
    if kind == KEY:
        stack, after = frames[stack + BELOW], np.int64(POPPED)
    elif kind in (AFTER_PROPERTY, AFTER_ITEMS):
        if label == 1:
            stack, after = frames[stack + BELOW], np.int64(POPPED)
        else:
            plan = frames[stack + WHAT]
            if kind == AFTER_PROPERTY:
                live = live_names(frames, plans, stack)
                return DONE, np.int64(plans[plan + KEY_CONTEXT]), stack, live, free, 0, 0
            index = min(frames[stack + LABEL], np.int64(plans[plan + PREFIX_LEN]))
            item = np.int64(plans[plan + ITEM_CONTEXT])
            after = _after(contexts, transitions, item, index)
            if after == UNKNOWN:
                return NEED_TRANSITION, context, stack, -1, free, item, index
    elif kind == LOCAL and label >= _CLOSE_ITEMS:
        after = np.int64(POPPED - (_CLOSED if label == _CLOSE_ITEMS else 0))
    elif given != UNKNOWN:
        after = given
    else:
        after = _after(contexts, transitions, context, label)
        if after == UNKNOWN:
            return NEED_TRANSITION, context, stack, -1, free, context, label
    while POPPED >= after > PUSHED:
        if stack == 0:
            return REFUSED, context, stack, -1, free, 0, 0
        what = frames[stack + WHAT]
        label = POPPED - after
        if what < 0:
            context, stack = -1 - what, frames[stack + BELOW]
            after = _after(contexts, transitions, context, label)
            if after == UNKNOWN:
                return NEED_TRANSITION, context, stack, -1, free, context, label
        elif plans[what + KIND] == OBJECT:
            size = object_size(frames, plans, stack)
            if free + size > room:
                return NEED_FRAMES, context, stack, -1, free, 0, 0
            for i in range(SEEN + plans[what + NUM_WORDS]):
                frames[free + i] = frames[stack + i]
            label = frames[stack + LABEL]
            if label >= plans[what + FIRST_NAME]:
                frames[free + SEEN + (label >> 6)] |= np.int64(1) << (label & 63)
            frames[free + COUNT] += 1
            find_live(frames, plans, words, free)
            live = free + SEEN + np.int64(plans[what + NUM_WORDS]) + 1
            may_close = frames[live] & 1
            may_go_on = np.int64(frames[live] & ~1 != 0)
            for i in range(1, plans[what + NUM_WORDS]):
                may_go_on |= np.int64(frames[live + i] != 0)
            choices = 2 * (may_go_on | may_close << 1)
            context = np.int64(plans[what + AFTER_CONTEXT])
            return DONE, context, free, choices, free + size, 0, 0
        elif label == _CLOSED:
            stack, after = frames[stack + BELOW], np.int64(POPPED)
        else:
            if free + 3 > room:
                return NEED_FRAMES, context, stack, -1, free, 0, 0
            count = frames[stack + LABEL] + 1
            frames[free] = frames[stack + BELOW]
            frames[free + WHAT] = what
            frames[free + LABEL] = count
            high = np.int64(plans[what + ITEM_HIGH])
            may_go_on = np.int64(high < 0 or count < high)
            may_close = np.int64(count >= plans[what + ITEM_LOW])
            choices = 2 * (may_go_on | may_close << 1)
            return DONE, np.int64(plans[what + AFTER_ITEM]), free, choices, free + 3, 0, 0
    if after >= 0:
        return DONE, after, stack, contexts[after, LIVE], free, 0, 0
    if after == -1:
        return REFUSED, context, stack, -1, free, 0, 0
    push = 3 * (PUSHED - after)
    inner, outer, plan = pushes[push], pushes[push + 1], pushes[push + 2]
    live = np.int64(contexts[inner, LIVE])
    if free + 8 > room:
        return NEED_FRAMES, context, stack, -1, free, 0, 0
    if outer >= 0:
        frames[free] = stack
        frames[free + WHAT] = -1 - outer
        stack = free
        free += 2
    if plan >= 0:
        frames[free] = stack
        frames[free + WHAT] = plan
        frames[free + LABEL] = 0
        stack = free
        if plans[plan + KIND] == ARRAY:
            free += 3
        else:
            num_words = np.int64(plans[plan + NUM_WORDS])
            if free + SEEN + 1 + 2 * num_words > room:
                return NEED_FRAMES, context, stack, -1, free, 0, 0
            for i in range(LABEL, SEEN + num_words):
                frames[free + i] = 0
            find_live(frames, plans, words, stack)
            live = live_names(frames, plans, stack)
            free += SEEN + 1 + 2 * num_words
    return DONE, np.int64(inner), stack, live, free, 0, 0


@njit(inline="always")
def _may_go_on(rows, states, start, byte):  # type: ignore[no-untyped-def]
    """Whether an undecided context's lexeme may go on with a byte, or end before it."""
    return (
        start == PENDING
        or states[start, READY] == 0
        or states[start, END_LABEL] >= 0
        or rows[start, byte] != DEAD
    )


@jit(
    f"UniTuple(int64, 10)(int64, int64, int64, int64, int64, int64, int64, int64, int64, int64,"
    f" {_WHERE})",
)
def move(  # type: ignore[no-untyped-def]
    byte, at, state, context, stack, live, begin, free, given, with_text,
    frames, text, pushdown,
):  # fmt: skip
    """The position after a byte at ``text[at]``.

    The pushdown table is asked where a transition depends on the text, and answers with ``given``:
    with ``with_text`` wherever a context captures it, else only where the answer for an unknown
    text is undecided.

    Returns:
        The status, the state, the context, the stack, the live labels, the beginning of the
        lexeme, the free word, and three that are asked. Where something is asked, the position is
        still before the byte, though perhaps in a further context.
    """
    rows = int32_table(pushdown, ROWS, 256)
    states = int32_table(pushdown, STATES, NUM_STATE_COLUMNS)
    contexts = int32_table(pushdown, CONTEXTS, NUM_CONTEXT_COLUMNS)
    words, plans = uint64s(pushdown, WORDS), int32s(pushdown, PLANS)
    asked, asked_too, end = np.int64(0), np.int64(0), np.int64(at)
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
        if with_text and given == UNKNOWN and contexts[context, CAPTURES]:
            return NEED_TEXT, state, context, stack, live, begin, free, context, label, end
        status, after, above, lives, used, asked, asked_too = cross(
            context, stack, label, begin, end, free, given,
            frames, text, pushdown,
        )  # fmt: skip
        if status != DONE:
            return status, state, context, stack, live, begin, free, asked, asked_too, end
        start = np.int64(contexts[after, START])
        if contexts[after, CONTEXT_KIND] == UNDECIDED:
            if target == DEAD and not _may_go_on(rows, states, start, byte):
                return REFUSED, state, context, stack, live, begin, free, 0, 0, 0
            if given == UNKNOWN and contexts[context, CAPTURES]:
                return NEED_TEXT, state, context, stack, live, begin, free, context, label, end
            start = np.int64(PENDING)
        context, stack, live, free = after, above, lives, used
        given = np.int64(UNKNOWN)
        state, begin = start, end
        if target != DEAD or state == PENDING:
            return DONE, state, context, stack, live, begin, free, 0, 0, 0


@jit(
    f"int64(int64[:,::1], int64, uint8[::1], int64[:,::1], int64, int64, int64, {_WHERE})",
)
def advance(  # type: ignore[no-untyped-def]
    positions, at, data, spans, index, resume, given,
    frames, text, pushdown,
):  # fmt: skip
    """Write the position after some bytes to ``positions[at + 1]``.

    ``spans[index]`` says where they are in ``data``: the first, and the one past the last.

    Where something is asked, that row holds how far it came; call again with ``resume``.
    ``text`` has room for the data.
    """
    row = at + 1 if resume else at
    first, last = spans[index, 0], spans[index, 1]
    length = positions[at, LENGTH]
    state, context, stack = positions[row, STATE], positions[row, CONTEXT], positions[row, STACK]
    live, begin = positions[row, LIVE_AT], positions[row, BEGIN]
    here, free = positions[row, LENGTH], positions[row, USED]
    asked, asked_too, end = np.int64(0), np.int64(0), np.int64(0)
    status = np.int64(DONE)
    for i in range(first + here - length, last):
        text[length + i - first] = data[i]
        status, state, context, stack, live, begin, free, asked, asked_too, end = move(
            data[i], length + i - first, state, context, stack, live, begin, free, given, 1,
            frames, text, pushdown,
        )  # fmt: skip
        if status != DONE:
            break
        given = np.int64(UNKNOWN)
        here += 1
    if status == DONE and state == PENDING:
        status = np.int64(REFUSED)
    after = positions[at + 1]
    after[STATE], after[CONTEXT], after[STACK] = state, context, stack
    after[LIVE_AT], after[BEGIN], after[LENGTH], after[USED] = live, begin, here, free
    after[ASKED], after[ASKED_TOO], after[ASKED_END] = asked, asked_too, end
    return status


@jit(
    f"int64(int64[:,::1], int64, int64, {_WHERE})",
)
def leave(  # type: ignore[no-untyped-def]
    positions, at, given,
    frames, text, pushdown,
):  # fmt: skip
    """Write the position once the lexeme at ``positions[at]`` has ended to the row after it.

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
        after[ASKED] = state
        return NEED_ROW
    label = np.int64(states[state, END_LABEL])
    if label < 0 or (live != -1 and not is_live(words, frames, live, label)):
        return REFUSED
    if given == UNKNOWN and contexts[context, CAPTURES]:
        after[ASKED], after[ASKED_TOO], after[ASKED_END] = context, label, before[LENGTH]
        return NEED_TEXT
    status, context, stack, live, free, asked, asked_too = cross(
        context, before[STACK], label, before[BEGIN], before[LENGTH], before[USED], given,
        frames, text, pushdown,
    )  # fmt: skip
    after[ASKED], after[ASKED_TOO] = asked, asked_too
    if status == DONE:
        after[STATE], after[CONTEXT], after[STACK] = contexts[context, START], context, stack
        after[LIVE_AT], after[BEGIN], after[USED] = live, before[LENGTH], free
    return status

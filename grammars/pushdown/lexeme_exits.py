"""Transitions, pushes and pops after a lexeme has ended with a label, in compiled code."""

from __future__ import annotations

import numpy as np
from numba import njit

from ramet.jit import jit

from .pointers import int32_table, int32s, uint64s
from .seen_keys import read_name
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
    live_names,
    object_size,
)
from .tables import (
    AFTER_ITEMS,
    AFTER_PROPERTY,
    CLOSE_ITEMS,
    CLOSED,
    CONTEXT_KIND,
    CONTEXTS,
    DONE,
    KEY,
    LIVE,
    LOCAL,
    NEED_FRAMES,
    NEED_TRANSITION,
    NUM_CONTEXT_COLUMNS,
    PLANS,
    POPPED,
    PUSHED,
    PUSHES,
    REFUSED,
    TRANSITIONS,
    TRANSITIONS_OF,
    UNKNOWN,
    WORDS,
)

WHERE = "int64[::1], uint8[::1], int64[::1]"
"""The types of the last arguments of all these functions: a sequence's frames and text, and the
pushdown table's table."""


@njit(inline="always")
def _after(contexts, transitions, context, label):  # type: ignore[no-untyped-def]
    offset = contexts[context, TRANSITIONS]
    if offset < 0 or label >= transitions[offset]:
        return UNKNOWN
    return np.int64(transitions[offset + 1 + label])


@jit(
    f"UniTuple(int64, 7)(int64, int64, int64, int64, int64, int64, int64, {WHERE})",
)
def cross(  # type: ignore[no-untyped-def]
    context, stack, label, begin, end, free, supplied, frames, text, pushdown
):  # fmt: skip
    """Follows the transition after the lexeme ``text[begin:end]`` has ended with a live label.

    Args:
        free: the first free word of ``frames``.
        supplied: the transition, where it was requested with the text; else ``UNKNOWN``.

    Returns:
        The status, the context, the stack, the live labels, the free word, and the two words of a
        request.
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
    elif kind == LOCAL and label >= CLOSE_ITEMS:
        after = np.int64(POPPED - (CLOSED if label == CLOSE_ITEMS else 0))
    elif supplied != UNKNOWN:
        after = supplied
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
        elif label == CLOSED:
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

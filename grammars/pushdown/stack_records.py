"""The records of a parser stack: the open objects and arrays around a position, for compiled code.

A sequence's stack is a list linked through int64 words; a record is never changed, so that earlier
positions stay what they were. Index 0 is the empty stack. Each record begins with the index of
the one below it, then describes itself:

- ``[below, -1 - context]``: an inner text was pushed onto this outer context.
- ``[below, plan, label, count, names, seen..., n, live...]``: an open object whose properties only
  have to be counted and distinguished. ``label`` is the property that is being read; ``count`` how
  many are complete; ``seen`` the labels of those with a label of their own, n words of bits;
  ``live`` the labels that may come next (bit 0: the object may close); ``names`` leads to the
  names that have none, as records ``[names, length, bytes...]`` in UTF-8.
- ``[below, plan, count]``: an open array of which only the items' number matters.

``plan`` is an offset in ``PushdownTable.plans``, which has the fixed properties of the object or
array.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ramet.jit import jit

BELOW, WHAT, LABEL, COUNT, NAMES, SEEN = range(6)
"""The places in an object's record. An array's count is at ``LABEL``."""

OBJECT, ARRAY = range(2)
"""The kinds of plans: a plan's first entry. The following constants name the others."""

KIND, NUM_WORDS, FIRST_NAME, LOW, HIGH, REQUIRED, POSSIBLE, KEY_CONTEXT, AFTER_CONTEXT = range(9)
"""Of an object: the words of its sets of labels, the first label that is a name's, the bounds on
the number of properties (``HIGH`` -1: none), offsets of sets in ``StateTable.words``, and the
contexts of a further name (which has the transitions to all values) and of what comes after a
property. Labels start at 1."""

_KIND, ITEM_LOW, ITEM_HIGH, PREFIX_LEN, ITEM_CONTEXT, AFTER_ITEM = range(6)
"""Of an array: the bounds on the number of items, from which item on all are alike, the context
with the transitions to items' contexts, and the one of what comes after an item."""

NO_FILTER = -1
"""In place of an offset of live labels: all are live. Less than that is -2 minus the index of a
record's live labels; more is an offset in ``StateTable.words``."""


@njit(inline="always")
def _popcount(x):  # type: ignore[no-untyped-def]
    x = x - ((x >> np.uint64(1)) & np.uint64(0x5555555555555555))
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((x * np.uint64(0x0101010101010101)) >> np.uint64(56))


@njit(inline="always")
def _word(words, offset, i):  # type: ignore[no-untyped-def]
    return words[offset + 1 + i] if i < np.int64(words[offset]) else np.uint64(0)


@njit(inline="always")
def meets(words, frames, reach, live):  # type: ignore[no-untyped-def]
    """Whether one of the labels at ``words[reach]`` is live (see ``NO_FILTER``)."""
    if live >= 0:
        for i in range(1, 1 + np.int64(min(words[reach], words[live]))):
            if words[reach + i] & words[live + i]:
                return True
        return False
    at = -2 - live
    for i in range(1, 1 + min(np.int64(words[reach]), frames[at])):
        if words[reach + i] & np.uint64(frames[at + i]):
            return True
    return False


@njit(inline="always")
def is_live(words, frames, live, label):  # type: ignore[no-untyped-def]
    """Whether a label is live."""
    word = label >> 6
    if live >= 0:
        if word >= np.int64(words[live]):
            return False
        return (words[live + 1 + word] >> np.uint64(label & 63)) & np.uint64(1) != 0
    at = -2 - live
    if word >= frames[at]:
        return False
    return (frames[at + 1 + word] >> (label & 63)) & 1 != 0


@njit(inline="always")
def live_names(frames, plans, record):  # type: ignore[no-untyped-def]
    """How a context writes that an object's own live labels are its own."""
    return -2 - (record + SEEN + plans[frames[record + WHAT] + NUM_WORDS])


@njit(inline="always")
def object_size(frames, plans, record):  # type: ignore[no-untyped-def]
    """The words of an object's record."""
    return SEEN + 1 + 2 * plans[frames[record + WHAT] + NUM_WORDS]


@jit(
    "void(int64[::1], int32[::1], uint64[::1], int64)",
)
def find_live(frames, plans, words, record):  # type: ignore[no-untyped-def]
    """Write an object's live labels.

    Room is reserved for missing required names: once they are as many as may still come, no other
    name is live.
    """
    plan = frames[record + WHAT]
    num_words = np.int64(plans[plan + NUM_WORDS])
    required, possible = np.int64(plans[plan + REQUIRED]), np.int64(plans[plan + POSSIBLE])
    low, high = np.int64(plans[plan + LOW]), np.int64(plans[plan + HIGH])
    first_name = np.int64(plans[plan + FIRST_NAME])
    count = frames[record + COUNT]
    live = record + SEEN + num_words
    frames[live] = num_words
    # Classes of names have the labels from 1 up, and infinitely many members.
    classes = (np.uint64(1) << np.uint64(first_name if first_name < 63 else 63)) - np.uint64(1)
    num_missing = np.int64(0)
    num_free = np.int64(0)
    is_endless = False
    is_dead = False
    for i in range(num_words):
        seen = np.uint64(frames[record + SEEN + i])
        missing = _word(words, required, i) & ~seen
        free = _word(words, possible, i) & ~seen
        num_missing += _popcount(missing)
        if missing & ~free:
            is_dead = True
        frames[live + 1 + i] = np.int64(free)
        if i == 0 and free & classes:
            is_endless = True
        num_free += _popcount(free)
    must = high != -1 and count + num_missing >= high
    if must and count + num_missing > high:
        is_dead = True
    if not is_dead and num_missing + count < low and not is_endless and num_free < low - count:
        is_dead = True
    for i in range(num_words):
        if is_dead:
            frames[live + 1 + i] = 0
        elif must:
            seen = np.uint64(frames[record + SEEN + i])
            frames[live + 1 + i] = np.int64(_word(words, required, i) & ~seen)
    if not is_dead and num_missing == 0 and count >= low:
        frames[live + 1] |= 1

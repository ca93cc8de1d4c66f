"""The layout of the arrays that compiled code reads: columns, statuses and special entries."""

from __future__ import annotations

DONE, NEED_ROW, NEED_TRANSITION, NEED_EDGE, NEED_TEXT, NEED_FRAMES, REFUSED = range(7)
"""The status of a transition; "requested" are the last entries of its result.

- ``NEED_ROW``: the row of state requested[0] is missing.
- ``NEED_TRANSITION``: context requested[0]'s transition by label requested[1] is missing.
- ``NEED_EDGE``: the entry of state requested[0]'s row for byte requested[1] is missing.
- ``NEED_TEXT``: what comes after context requested[0] by label requested[1] depends on the lexeme's
  text, which ends before requested[2].
- ``NEED_FRAMES``: there is no more room for records.
- ``REFUSED``: the byte isn't allowed.
"""

# Columns of ``PushdownTable.states``.
READY, END_LABEL, REACH, ROOM, ROOM_LABEL, SLICE, NAME_LABEL = range(7)

# Columns of ``PushdownTable.contexts``.
START, TRANSITIONS, LIVE, IS_END, CONTEXT_KIND, CAPTURES = range(6)

# Columns of a sequence's positions.
STATE, CONTEXT, STACK, LIVE_AT, BEGIN, LENGTH, USED, REQUESTED, REQUESTED_DETAIL, REQUESTED_END = (
    range(10)
)
"""``LENGTH`` is that of the text so far, ``USED`` the words of records that are written."""

PLAIN, KEY, AFTER_PROPERTY, AFTER_ITEMS, LOCAL, UNDECIDED = range(6)
"""Kinds of contexts. For those in the middle, the record on top of the stack determines what
follows. A ``LOCAL`` value was pushed: labels from ``CLOSE_ITEMS`` up pop it. What follows an
``UNDECIDED`` one depends on a text: its lexeme, unless ``PENDING``, has all possible texts."""

ROWS, STATES, CONTEXTS, TRANSITIONS_OF, WORDS, PUSHES, PLANS = range(7)
"""The arrays of a pushdown table's table (see ``pointers.py``), as it and its state table describe
them."""

NUM_STATE_COLUMNS, NUM_CONTEXT_COLUMNS = 7, 6

UNKNOWN = -2
"""A transition that has not been computed."""

POPPED, PUSHED = -3, -5
"""Transitions: ``POPPED - label`` pops, ``PUSHED - i`` pushes the i-th of
``PushdownTable.pushes``."""

PENDING, UNSURE = 0, 1
"""The lexeme states for "depends on an unknown text": whether the text may come to here, or whether
any further byte is allowed."""

CLOSED = 1
"""The label of a pop where the array's bracket came in place of its first item; else it is 0."""

CLOSE_ITEMS = 2
"""The label of a local value in whose place the array's bracket came; those above end a scalar."""

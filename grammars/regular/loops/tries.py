"""Automata of listed texts, compiled."""

from __future__ import annotations

import numpy as np

from ramet.jit import jit

from .tables import BYTES, INT, INT64S, OK, TOO_MANY_STATES, Array, grown_1d, grown_2d


@jit(
    (BYTES, INT64S, BYTES, INT, INT),
)
def trie(
    data: Array,
    starts: Array,
    class_of: Array,
    num_classes: int,
    max_states: int,
) -> tuple[int, Array, Array]:
    """The tree of sorted, distinct texts ``data[starts[i]:starts[i + 1]]``, as an automaton."""
    table = np.full((64, num_classes), -1, np.int32)
    accepting = np.zeros(64, np.bool_)
    num_states = 1
    for i in range(starts.shape[0] - 1):
        state = 0
        for at in range(starts[i], starts[i + 1]):
            c = class_of[data[at]]
            if table[state, c] < 0:
                if num_states >= max_states:
                    return TOO_MANY_STATES, table[:0], accepting[:0]
                if num_states == table.shape[0]:
                    table = grown_2d(table, num_states + 1)
                    accepting = grown_1d(accepting, num_states + 1)
                table[num_states] = -1
                accepting[num_states] = False
                table[state, c] = num_states
                num_states += 1
            state = table[state, c]
        accepting[state] = True
    return OK, table[:num_states].copy(), accepting[:num_states].copy()

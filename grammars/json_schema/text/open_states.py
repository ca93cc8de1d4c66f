"""States of a string body's automaton from which every text continues."""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from ramet.grammars.pushdown.json_text import KEY_SLICE, slice_tables
from ramet.grammars.regular.loops.tables import BYTES, TABLE
from ramet.jit import jit

_NOT_SEEN = -1


@jit(types.boolean[::1](TABLE, BYTES, TABLE))
def _open_states(table, class_of, text):  # type: ignore[no-untyped-def]
    num_states, num_classes = table.shape
    modes = np.full(num_states, _NOT_SEEN, np.int32)
    stack = np.empty(num_states + 1, np.int32)
    stops = np.zeros(num_states, np.bool_)
    modes[0] = 0
    stack[0] = 0
    depth = 1
    while depth > 0:
        depth -= 1
        state = stack[depth]
        for byte in range(256):
            mode = text[modes[state], byte]
            if mode < 0:
                continue
            target = table[state, class_of[byte]]
            if target < 0:
                stops[state] = True
            elif modes[target] == _NOT_SEEN:
                modes[target] = mode
                stack[depth] = target
                depth += 1
            elif modes[target] != mode:
                stops[target] = True
    changed = True
    while changed:
        changed = False
        for state in range(num_states - 1, -1, -1):
            if not stops[state]:
                for c in range(num_classes):
                    target = table[state, c]
                    if target >= 0 and stops[target]:
                        stops[state] = True
                        changed = True
                        break
    for state in range(num_states):
        stops[state] = modes[state] == 0 and not stops[state]
    return stops


def open_states(table: NDArray[np.int32], class_of: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """The states between two characters from which any text of ``KEY_TEXT`` continues indefinitely.

    Args:
        table, class_of: the automaton, as in a ``Dfa``; each of its texts begins one of
            ``KEY_TEXT``.

    Returns:
        bool[num_states].
    """
    found: NDArray[np.bool_] = _open_states(
        np.ascontiguousarray(table), class_of, slice_tables()[KEY_SLICE]
    )
    return found

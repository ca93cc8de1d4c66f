"""A string body's automaton that counts characters: how few, how many, and within which bounds.

The automaton has transitions by bytes; a border is a state between two characters. The questions
here are about lengths in characters, so they are answered on the graph of its distinct transitions,
in which a transition to a border completes one character.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ramet.grammars.pushdown.json_text import key_text
from ramet.grammars.regular import Dfa
from ramet.grammars.regular.loops.canonical import joint_classes
from ramet.grammars.regular.loops.products import product
from ramet.grammars.regular.loops.tables import BOOLS, INT, INT32S, INT64S, TABLE, Array
from ramet.jit import jit

_UNREACHED = -1
_BOTH = 0b1000


@jit((TABLE,))
def _moves_into(table: Array) -> tuple[Array, Array]:
    """The distinct transitions by target: ``sources[starts[t]:starts[t + 1]]`` lead to t."""
    num_states, num_classes = table.shape
    last = np.full(num_states, -1, np.int64)
    starts = np.zeros(num_states + 1, np.int64)
    for state in range(num_states):
        for c in range(num_classes):
            target = table[state, c]
            if target >= 0 and last[target] != state:
                last[target] = state
                starts[target + 1] += 1
    for state in range(num_states):
        starts[state + 1] += starts[state]
    sources = np.empty(starts[num_states], np.int32)
    fill = starts[:-1].copy()
    last[:] = -1
    for state in range(num_states):
        for c in range(num_classes):
            target = table[state, c]
            if target >= 0 and last[target] != state:
                last[target] = state
                sources[fill[target]] = state
                fill[target] += 1
    return starts, sources


@jit((INT64S, INT32S, BOOLS, BOOLS))
def _shortest(starts: Array, sources: Array, at_border: Array, accepting: Array) -> Array:
    """By state, the fewest characters to acceptance: breadth first, one level a character."""
    num_states = at_border.shape[0]
    shortest = np.full(num_states, _UNREACHED, np.int64)
    level = np.empty(num_states, np.int32)
    following = np.empty(num_states, np.int32)
    size = 0
    for state in range(num_states):
        if accepting[state]:
            shortest[state] = 0
            level[size] = state
            size += 1
    length = 0
    while size > 0:
        num_following = 0
        at = 0
        while at < size:
            target = level[at]
            at += 1
            cost = length + 1 if at_border[target] else length
            for i in range(starts[target], starts[target + 1]):
                source = sources[i]
                if shortest[source] < 0:
                    shortest[source] = cost
                    if cost == length:
                        level[size] = source
                        size += 1
                    else:
                        following[num_following] = source
                        num_following += 1
        level, following = following, level
        size = num_following
        length += 1
    return shortest


@jit((TABLE, INT64S, BOOLS))
def _longest(table: Array, starts: Array, at_border: Array) -> int:
    """The most characters on a path from state 0; -1 if there is a loop."""
    num_states, num_classes = table.shape
    num_open = starts[1:] - starts[:-1]
    longest = np.zeros(num_states, np.int64)
    last = np.full(num_states, -1, np.int64)
    queue = np.empty(num_states, np.int32)
    size = 0
    for state in range(num_states):
        if num_open[state] == 0:
            queue[size] = state
            size += 1
    at = 0
    most = 0
    while at < size:
        state = queue[at]
        at += 1
        most = max(most, longest[state])
        for c in range(num_classes):
            target = table[state, c]
            if target >= 0 and last[target] != state:
                last[target] = state
                length = longest[state] + (1 if at_border[target] else 0)
                longest[target] = max(longest[target], length)
                num_open[target] -= 1
                if num_open[target] == 0:
                    queue[size] = target
                    size += 1
    return most if size == num_states else -1


@jit((INT64S, INT32S, BOOLS, BOOLS, INT))
def _before(starts: Array, sources: Array, at_border: Array, alive: Array, steps: int) -> Array:
    """The states from which ``steps`` characters, one that is begun included, lead to ``alive``.

    ``alive`` are borders. The sets repeat at once when they no longer change.
    """
    num_states = at_border.shape[0]
    stack = np.empty(num_states, np.int32)
    for _ in range(steps):
        found = np.zeros(num_states, np.bool_)
        depth = 0
        for state in range(num_states):
            if alive[state] and at_border[state]:
                stack[depth] = state
                depth += 1
        while depth > 0:
            depth -= 1
            target = stack[depth]
            for i in range(starts[target], starts[target + 1]):
                source = sources[i]
                if not found[source]:
                    found[source] = True
                    if not at_border[source]:
                        stack[depth] = source
                        depth += 1
        same = True
        for state in range(num_states):
            if found[state] != alive[state]:
                same = False
                break
        alive = found
        if same:
            break
    return alive


class CharacterDfa:
    """A string body's automaton (see ``key_body``) that knows where characters end.

    A state is a state of the body with one of ``KEY_TEXT``. All lengths are in characters.

    Attributes:
        class_of, table: as in a ``Dfa``; state 0 is the start.
        at_border: bool[num_states]: a character ends here.
        accepting: bool[num_states].
        shortest: int64[num_states], the fewest characters to acceptance, one that is begun
            included.
    """

    def __init__(self, body: Dfa) -> None:
        text = key_text()
        class_of, of_body, of_text = joint_classes(body.class_of, text.class_of)
        # Whatever goes on in the body goes on in ``KEY_TEXT``: there is a pair a state, or hardly
        # more.
        _, self.table, self.accepting, pairs = product(
            body.table, body.accepting, body.start, text.table, text.accepting, text.start,
            of_body, of_text, _BOTH, np.iinfo(np.int32).max,
        )  # fmt: skip
        self.class_of = class_of.astype(np.uint8)
        self.at_border = pairs[:, 1] == 0
        self._starts, self._sources = _moves_into(self.table)
        self.shortest = _shortest(self._starts, self._sources, self.at_border, self.accepting)

    def longest(self) -> int | None:
        """The most characters of a member; None if there is no bound."""
        # Every state can be completed, so what loops has no bound.
        longest = int(_longest(self.table, self._starts, self.at_border))
        return None if longest < 0 else longest

    def within(self, low: int, high: int | None) -> NDArray[np.bool_]:
        """The states from which ``low`` to ``high`` more characters can lead to acceptance."""
        # After ``low`` characters, the rest may be as short as it can.
        most = np.iinfo(np.int64).max if high is None else high - max(low, 0)
        ended: NDArray[np.bool_] = self.shortest <= most
        if low <= 0:
            return ended
        ended &= self.at_border
        found: NDArray[np.bool_] = _before(self._starts, self._sources, self.at_border, ended, low)
        return found

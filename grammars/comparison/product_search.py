"""Searches a shortest text on which two automata differ or agree, by interegular's products.

interegular gets Ramet's own automata over bytes, not the patterns: each pattern is read in its own
dialect, and none that interegular's parser reads differently gives a wrong answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from interegular.fsm import FSM, Alphabet, parallel

from ramet.grammars.errors import GrammarTooComplexError
from ramet.grammars.regular import Dfa

_READABLE = (
    b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 "
    + bytes(range(0x21, 0x7F))
    + bytes(range(0x80, 0x100))
    + b"\n\t"
)
_PREFERENCE = {byte: rank for rank, byte in reversed(list(enumerate(_READABLE)))}


class Work:
    """How much comparisons may cost: states of each automaton and product, and time in all.

    interegular looks states up in a list, so that a product's time grows with their square.
    """

    max_states = 1500

    def __init__(self, max_seconds: float) -> None:
        self.max_seconds = max_seconds
        self._end = time.monotonic() + max_seconds

    @property
    def is_over(self) -> bool:
        """Whether the time has passed."""
        return time.monotonic() > self._end

    def check(self, num_states: int) -> None:
        """Raises once the time has passed, or if there are more states than the limit."""
        if num_states > self.max_states:
            raise GrammarTooComplexError(
                "", "comparison", f"the comparison needs more than {self.max_states} states"
            )
        if self.is_over:
            raise GrammarTooComplexError(
                "", "comparison", f"the comparison takes longer than {self.max_seconds:g} s"
            )


def shortest_text(
    first: Dfa, second: Dfa, is_wanted: Callable[[bool, bool], bool], work: Work
) -> str | None:
    """A text with the fewest bytes for which ``is_wanted(in first, in second)``; None: no text.

    Raises:
        GrammarTooComplexError: it takes more work than is allowed.
    """
    num_states = 0

    def is_final(accepts: list[bool]) -> bool:
        nonlocal num_states
        num_states += 1
        work.check(num_states)
        return is_wanted(accepts[0], accepts[1])

    for dfa in (first, second):
        work.check(dfa.num_states)
    product: FSM = parallel((_machine(first), _machine(second)), is_final)
    byte_of = {
        key: min(symbols, key=lambda b: _PREFERENCE.get(b, 256))
        for key, symbols in product.alphabet.by_transition.items()
    }
    came: dict[int, tuple[int, int]] = {}
    queue: list[int] = [product.initial]
    for state in queue:
        if state in product.finals:
            return _path(state, product.initial, came).decode()
        transitions = ((byte_of[key], target) for key, target in product.map.get(state, {}).items())
        for byte, target in sorted(transitions, key=lambda m: _PREFERENCE.get(m[0], 256)):
            if target not in came and target != product.initial:
                came[target] = state, byte
                queue.append(target)
    return None


def _path(state: int, initial: int, came: dict[int, tuple[int, int]]) -> bytes:
    path = bytearray()
    while state != initial:
        state, byte = came[state]
        path.append(byte)
    return bytes(reversed(path))


def _machine(dfa: Dfa) -> FSM:
    num_classes = dfa.table.shape[1]
    groups = [np.flatnonzero(dfa.class_of == c).tolist() for c in range(num_classes)]
    transitions = {
        state: {key: target for key, target in enumerate(row) if target >= 0}
        for state, row in enumerate(dfa.table.tolist())
    }
    return FSM(
        alphabet=Alphabet.from_groups(*groups),
        states=set(transitions) or {0},
        initial=0,
        finals=set(dfa.finals),
        map=transitions,
    )

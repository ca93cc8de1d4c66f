"""Free text with bounds on its tokens: positions inside it and their transitions.

An automaton reads bytes, not tokens, so a sequence counts them (see ``Matcher.accept``), and at
each token's beginning its position gets the phase of the count. What may come next depends on the
phase alone, so the number of states doesn't grow with the bound.
"""

from __future__ import annotations

from dataclasses import dataclass

from ramet.grammars.regular import Dfa

from .expressions import BoundedText

STAYING, LEAVING, FREE, ENDING = range(4)
"""Phases: the text may not end; it may end from the next byte on; it may end; it must, at the next
border between characters."""


@dataclass(frozen=True)
class TextPosition:
    """A place in the ``index``-th foreign thing, a ``BoundedText``."""

    index: int
    state: int
    phase: int


def phase_of(text: BoundedText, count: int) -> int:
    """The phase of a text in which ``count`` tokens have begun, for the next one."""
    if text.max_tokens is not None and count >= text.max_tokens:
        return ENDING
    if count >= text.min_tokens:
        return FREE
    return LEAVING if count + 1 >= text.min_tokens else STAYING


def first_phase(text: BoundedText) -> int:
    """The phase of a text at its beginning, within a token."""
    return STAYING if text.min_tokens else FREE


def may_end(dfa: Dfa, position: TextPosition) -> bool:
    """Whether the text may end at a position."""
    return position.phase in (FREE, ENDING) and bool(dfa.accepting[position.state])


def transitions_of(dfa: Dfa, position: TextPosition) -> list[tuple[int, TextPosition]]:
    """Sets of bytes, 256 bits, and the positions that they lead to."""
    if position.phase == ENDING and dfa.accepting[position.state]:
        return []
    phase = FREE if position.phase == LEAVING else position.phase
    found: dict[int, int] = {}
    for byte, target in enumerate(dfa.table[position.state][dfa.class_of].tolist()):
        if target >= 0:
            found[target] = found.get(target, 0) | 1 << byte
    return [(bits, TextPosition(position.index, t, phase)) for t, bits in found.items()]

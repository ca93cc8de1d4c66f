"""Sets of strings: listed, all but some, or an automaton's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ramet.grammars.json_schema.schema.atoms import TextIs
from ramet.grammars.json_schema.schema.formula import Formula, all_of, atom, negate
from ramet.grammars.regular import Dfa

_ENTRY_BYTES = 1500
"""Approximate memory of an entry in addition to its tables."""


@dataclass(frozen=True, slots=True)
class TextSet:
    """A set of strings: those in ``texts``, or, if they are ``others``, all in ``base`` but them.

    ``base`` is a ``Dfa`` of UTF-8, if there is one, whose members have ``low`` to ``high`` code
    points; those bounds alone otherwise. With a ``Dfa`` there are no ``texts``.
    """

    texts: frozenset[str]
    others: bool = False
    base: Dfa | None = None
    low: int = 0
    high: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is no such string."""
        if not self.others:
            return not self.texts
        if self.base is not None:
            return self.base.is_empty
        return self.size == 0

    @property
    def size(self) -> int | None:
        """How many strings there are; None if they are infinitely or too many."""
        if not self.others:
            return len(self.texts)
        if self.base is not None:
            return None if self.is_counted else self.base.num_members
        if self.high is None or self.high > 0:
            return None
        return 1 - len(self.texts & {""})

    @property
    def never_runs_out(self) -> bool:
        """Whether every prefix of a string in the set has infinitely many completions."""
        return self.others and self.base is None and self.high is None

    @property
    def is_counted(self) -> bool:
        """Whether the bounds matter in addition to a base."""
        return self.base is not None and (self.low > 0 or self.high is not None)


def members(dfa: Dfa) -> set[str]:
    """Every member of a finite language."""
    found: set[str] = set()
    if dfa.is_empty:
        return found
    moves: list[list[tuple[int, bytes]]] = [[] for _ in range(dfa.num_states)]
    transitions = dfa.transitions
    for state, byte in zip(*np.nonzero(transitions >= 0), strict=True):
        moves[state].append((int(transitions[state, byte]), bytes((byte,))))
    stack = [(0, b"")]
    while stack:
        state, text = stack.pop()
        if dfa.accepting[state]:
            found.add(text.decode())
        stack += [(target, text + byte) for target, byte in moves[state]]
    return found


def members_of(texts: TextSet) -> set[str]:
    """Every string of a finite set."""
    if not texts.others:
        return set(texts.texts)
    return {""} - texts.texts if texts.base is None else members(texts.base)


def without(formula: Formula, texts: frozenset[str]) -> Formula:
    """A typed formula over strings, without some strings."""
    return all_of([formula, negate(atom(TextIs(texts)))]) if texts else formula


def num_bytes(made: object) -> int:
    """Approximate memory of a cached result: mostly that of its tables."""
    if isinstance(made, TextSet):
        return _ENTRY_BYTES + sum(map(len, made.texts))
    if isinstance(made, frozenset):
        return _ENTRY_BYTES + 100 * len(made)
    tables = [getattr(made, name, None) for name in ("table", "labels", "accepting", "at_border")]
    return _ENTRY_BYTES + sum(getattr(table, "nbytes", 0) for table in tables)

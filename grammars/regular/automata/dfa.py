"""``Dfa``: a regular language of bytes as its minimal deterministic automaton.

Values are immutable and canonical: two ``Dfa`` objects are equal exactly if their languages are.
From every state some member can be completed ("trimmed"), so a byte has no transition exactly where
no member has that byte.
"""

from __future__ import annotations

import hashlib
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from ramet.grammars.limits import DEFAULT_LIMITS, RegularLimits, too_complex
from ramet.grammars.regular.loops import canonical, products

_AND, _OR, _MINUS, _XOR = 0b1000, 0b1110, 0b0100, 0b0110


class Dfa:
    """A minimal, trimmed automaton over bytes.

    Attributes:
        class_of: uint8[256], each byte's class. Bytes of one class lead to the same states.
        table: int32[num_states, num_classes]; the next state, -1 where no member goes on.
        accepting: bool[num_states].
        start: the start state, 0; there is none in the empty language.
    """

    __slots__ = ("__dict__", "accepting", "class_of", "table")

    start = 0

    def __init__(
        self, class_of: NDArray[np.uint8], table: NDArray[np.int32], accepting: NDArray[np.bool_]
    ) -> None:
        self.class_of = class_of
        self.table = table
        self.accepting = accepting
        for array in (class_of, table, accepting):
            array.setflags(write=False)

    @classmethod
    def from_table(
        cls,
        class_of: NDArray[np.integer],
        table: NDArray[np.int32],
        accepting: NDArray[np.bool_],
        start: int = 0,
    ) -> Dfa:
        """The minimal automaton of any deterministic one whose states are all reachable."""
        classes, table, accepting = canonical.canonicalise(
            class_of.astype(np.int64), np.ascontiguousarray(table), accepting, start
        )
        return cls(classes.astype(np.uint8), table, accepting) if len(table) else EMPTY

    @classmethod
    def trimmed(
        cls, class_of: NDArray[np.integer], table: NDArray[np.int32], accepting: NDArray[np.bool_]
    ) -> Dfa:
        """An automaton without dead or unreachable states that isn't minimised.

        It may differ from another one of the same language.
        """
        states = np.arange(len(table), dtype=np.int32)
        classes, table, accepting = canonical.numbered(
            class_of.astype(np.int64), np.ascontiguousarray(table), accepting, states, states, 0
        )
        return cls(classes.astype(np.uint8), table, accepting)

    # -- looking ----------------------------------------------------------------------------

    @property
    def num_states(self) -> int:
        return int(self.table.shape[0])

    @property
    def is_empty(self) -> bool:
        """Whether the language has no member."""
        return self.num_states == 0

    @property
    def transitions(self) -> NDArray[np.int32]:
        """int32[num_states, 256]: the next state for each byte, -1 where there is none.

        It takes a KiB a state, and so isn't kept.
        """
        rows = np.ascontiguousarray(self.table[:, self.class_of])
        rows.setflags(write=False)
        return rows

    @cached_property
    def byte_runs(self) -> NDArray[np.int32]:
        """int32[num_runs, 3]: first byte, last byte and class of each run of bytes of a class."""
        starts = np.flatnonzero(self.class_of[1:] != self.class_of[:-1]) + 1
        firsts = np.concatenate(([0], starts))
        lasts = np.concatenate((starts - 1, [255]))
        return np.stack((firsts, lasts, self.class_of[firsts]), axis=1).astype(np.int32)

    @cached_property
    def edges(self) -> NDArray[np.int32]:
        """int32[num_edges, 4]: source, first byte, last byte, target."""
        byte_runs = self.byte_runs
        targets = self.table[:, byte_runs[:, 2]]
        states, runs = np.nonzero(targets >= 0)
        transitions = (states, byte_runs[runs, 0], byte_runs[runs, 1], targets[states, runs])
        return np.stack(transitions, axis=1).astype(np.int32)

    @cached_property
    def finals(self) -> list[int]:
        """The accepting states."""
        return np.flatnonzero(self.accepting).tolist()

    @cached_property
    def digest(self) -> bytes:
        """A 16-byte hash of the language: equal languages, and only those, have equal ones."""
        return hashlib.blake2b(
            self.class_of.tobytes() + self.table.tobytes() + self.accepting.tobytes(),
            digest_size=16,
        ).digest()

    def step(self, state: int, text: bytes) -> int:
        """The state after ``text``, or -1."""
        for byte in text:
            if state < 0:
                break
            state = int(self.table[state, self.class_of[byte]])
        return state

    def accepts(self, text: bytes) -> bool:
        """Whether ``text`` is a member."""
        state = -1 if self.is_empty else self.step(self.start, text)
        return state >= 0 and bool(self.accepting[state])

    def shortest(self) -> bytes | None:
        """The least of the shortest members; None if there is none."""
        if self.is_empty:
            return None
        first_byte = [int(np.argmax(self.class_of == c)) for c in range(self.table.shape[1])]
        came: dict[int, tuple[int, int]] = {}
        queue = [self.start]
        for state in queue:
            if self.accepting[state]:
                path = bytearray()
                while state != self.start:
                    state, byte = came[state]
                    path.append(byte)
                return bytes(reversed(path))
            for c, target in enumerate(self.table[state].tolist()):
                if target > 0 and target not in came:
                    came[target] = (state, first_byte[c])
                    queue.append(target)
        raise AssertionError("a trimmed automaton reaches acceptance")

    @cached_property
    def num_members(self) -> int | None:
        """The number of members; None if there are infinitely many."""
        if self.is_empty:
            return 0
        sizes = np.bincount(self.class_of, minlength=self.table.shape[1]).tolist()
        counts: dict[int, int] = {}
        open_states: set[int] = set()
        stack = [(self.start, False)]
        while stack:
            state, done = stack.pop()
            if done:
                open_states.discard(state)
                counts[state] = int(self.accepting[state]) + sum(
                    sizes[c] * counts[t] for c, t in enumerate(self.table[state].tolist()) if t >= 0
                )
                continue
            if state in counts:
                continue
            open_states.add(state)
            stack.append((state, True))
            for target in self.table[state].tolist():
                if target in open_states:
                    return None
                if target >= 0 and target not in counts:
                    stack.append((target, False))
        return counts[self.start]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dfa) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        size = f"{self.num_states} states, {self.table.shape[1]} classes"
        return f"Dfa({size}, e.g. {self.shortest()!r})"

    # -- boolean operations -----------------------------------------------------------------

    def intersect(self, other: Dfa, limits: RegularLimits = DEFAULT_LIMITS) -> Dfa:
        """The members of both."""
        return self._product(other, _AND, limits)

    def union(self, other: Dfa, limits: RegularLimits = DEFAULT_LIMITS) -> Dfa:
        """The members of either."""
        return self._product(other, _OR, limits)

    def difference(self, other: Dfa, limits: RegularLimits = DEFAULT_LIMITS) -> Dfa:
        """The members of this language that are not members of ``other``."""
        return self._product(other, _MINUS, limits)

    def complement(self, limits: RegularLimits = DEFAULT_LIMITS) -> Dfa:
        """The valid UTF-8 texts that are not members."""
        return any_text().difference(self, limits)

    def is_subset(self, other: Dfa, limits: RegularLimits = DEFAULT_LIMITS) -> bool:
        """Whether every member is a member of ``other``."""
        return self.difference(other, limits).is_empty

    def is_disjoint(self, other: Dfa, limits: RegularLimits = DEFAULT_LIMITS) -> bool:
        """Whether the two have no member in common."""
        return self.intersect(other, limits).is_empty

    __and__ = intersect
    __or__ = union
    __sub__ = difference

    def _product(self, other: Dfa, truth: int, limits: RegularLimits) -> Dfa:
        if self.is_empty or other.is_empty or self is other:
            x, y = not self.is_empty, not other.is_empty
            if self is other:
                return self if truth & _AND else EMPTY
            if x and truth & _MINUS:
                return self
            return other if y and truth & 0b0010 else EMPTY
        class_of, of_self, of_other = canonical.joint_classes(self.class_of, other.class_of)
        status, table, accepting, _ = products.product(
            self.table, self.accepting, self.start, other.table, other.accepting, other.start,
            of_self, of_other, truth, limits.states_for(len(of_self)),
        )  # fmt: skip
        if status:
            raise too_complex("a combination of two regular languages", limits)
        return Dfa.from_table(class_of, table, accepting)


EMPTY = Dfa(np.zeros(256, np.uint8), np.empty((0, 1), np.int32), np.empty(0, np.bool_))
"""The language with no member."""

EPSILON = Dfa(np.zeros(256, np.uint8), np.full((1, 1), -1, np.int32), np.ones(1, np.bool_))
"""The language of the empty text alone."""


@cache
def any_text() -> Dfa:
    """Every valid UTF-8 text (RFC 3629: no surrogates, nothing overlong)."""
    table = np.full((8, 256), -1, np.int32)
    done, last, last_two, last_three = 0, 1, 2, 3
    for state, low, high, target in (
        (done, 0x00, 0x7F, done),
        (done, 0xC2, 0xDF, last),
        (done, 0xE0, 0xE0, 4),
        (done, 0xE1, 0xEF, last_two),
        (done, 0xED, 0xED, 5),
        (done, 0xF0, 0xF0, 6),
        (done, 0xF1, 0xF3, last_three),
        (done, 0xF4, 0xF4, 7),
        (last, 0x80, 0xBF, done),
        (last_two, 0x80, 0xBF, last),
        (last_three, 0x80, 0xBF, last_two),
        (4, 0xA0, 0xBF, last),
        (5, 0x80, 0x9F, last),
        (6, 0x90, 0xBF, last_two),
        (7, 0x80, 0x8F, last_two),
    ):
        table[state, low : high + 1] = target
    accepting = np.arange(8) == done
    return Dfa.from_table(np.arange(256, dtype=np.uint8), table, accepting)

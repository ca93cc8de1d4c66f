"""A ``Machine`` numbers a grammar's lexeme states and contexts and keeps them as arrays.

The arrays are what the compiled walk (``walk.py``) reads. Rows and transitions are filled in when
the walk, or a matcher, first needs them.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from .automaton import DEAD, LAZY, After, Context, Lexeme, Pop, Push, Row
from .errors import GrammarTooComplexError
from .limits import CompileLimits
from .moves import (
    ASKED,
    ASKED_END,
    ASKED_TOO,
    BEGIN,
    CONTEXT,
    DONE,
    END_LABEL,
    IS_END,
    LIVE,
    LIVE_AT,
    NEED_EDGE,
    NEED_ROW,
    NEED_TEXT,
    NEED_TRANSITION,
    PENDING,
    PLAIN,
    POPPED,
    PUSHED,
    READY,
    REFUSED,
    START,
    STATE,
    TRANSITIONS,
    UNKNOWN,
    USED,
    advance,
    leave,
)
from .records import NO_FILTER
from .trail import NUM_COLUMNS, Trail

UNBOUNDED_ROOM = 1 << 20

_NOT_ENTERED = -1

_FIRST_CAPACITY = 4096
"""Rows that are set aside at first. What isn't written takes no memory."""


class Machine:
    """The states and contexts of one grammar.

    Attributes:
        rows: int32[capacity, 256]: a state's targets.
        states: int32[capacity, 7]: READY (is the row filled), END_LABEL (the label with which
            the lexeme may end here, or -1), REACH (offset into ``words`` of the labels reachable
            from here, or -1: no filter), ROOM (if not -1: the state is at a border inside a
            string, of which exactly so many more characters are allowed), ROOM_LABEL (provided
            that this label is live; -1: always), SLICE (by the vocabulary's slice of this index),
            NAME_LABEL (a property's name with this label is complete here; or -1).
        contexts: int32[capacity, 6]: START (the lexeme's start state), TRANSITIONS (offset into
            ``transitions``), LIVE (offset into ``words`` of the live labels, or -1), IS_END,
            CONTEXT_KIND and CAPTURES (see ``automaton.Context``).
        transitions: int32[...]: by context offset + label, the next context, -1, ``UNKNOWN``, or a
            push or pop.
        masked_as: states in which exactly the same tokens are allowed as in another state.
        words: uint64[...]: bit sets; each is its number of words, then the words. The sets of the
            labels 0 and 1 are at twice their value.
        pushes: int32[...]: an inner context, the outer one, and the plan of a record (or -1 each),
            at 3 * i and after.
        plans: int32[...]: what is fixed about objects and arrays that records describe; see
            ``records.py``.
    """

    def __init__(
        self,
        limits: CompileLimits,
        prototype: Machine | None = None,
        *,
        longest_token: int = 1 << 30,
    ) -> None:
        """``prototype``, if given, has lexemes but no contexts; what it has installed is copied.

        ``longest_token`` is the length in bytes of the longest token that will be asked about.
        """
        self.limits = limits
        self.longest_token = longest_token
        self.masked_as: dict[int, int] = {}
        # What lexemes know the machine by; they must not keep it alive.
        self._token = object()
        self.lock = threading.RLock()
        self.contexts: NDArray[np.int32] = np.empty((64, 6), np.int32)
        self.transitions: NDArray[np.int32] = np.full(1024, UNKNOWN, np.int32)
        self.num_contexts = 0
        self.num_transitions = 0
        self._numbers: dict[Hashable, int] = {}
        self.pushes: NDArray[np.int32] = np.zeros(96, np.int32)
        self._push_ids: dict[tuple[int, int, int], int] = {}
        self.plans: NDArray[np.int32] = np.zeros(64, np.int32)
        self._num_plan_entries = 0
        self._plan_offsets: dict[Hashable, int] = {}
        self._after: dict[tuple[int, int], int] = {}
        self._context_ids: dict[Hashable, Context] = {}
        self.context_list: list[Context] = []
        self.has_special = False
        if prototype is None:
            self.rows: NDArray[np.int32] = np.empty((_FIRST_CAPACITY, 256), np.int32)
            self.states: NDArray[np.int32] = np.empty((_FIRST_CAPACITY, 7), np.int32)
            self.words: NDArray[np.uint64] = np.zeros(256, np.uint64)
            self.num_states = 0
            self.num_words = 0
            self._lazy: dict[int, tuple[Lexeme, int]] = {}
            self._edges: dict[int, tuple[Lexeme, int]] = {}
            self._block_firsts: list[int] = []
            self._block_lexemes: list[Lexeme] = []
            self._reserved: dict[tuple[Hashable, int], int] = {}
            self._installed: dict[Hashable, int] = {}
            self._bit_sets: dict[int, int] = {}
            self.rows[self.new_states(1)] = DEAD
            for bits in range(4):
                assert self.bit_set(bits) == 2 * bits
        else:
            capacity = prototype.num_states + _FIRST_CAPACITY
            ready = np.flatnonzero(prototype.states[: prototype.num_states, READY])
            self.rows = np.empty((capacity, 256), np.int32)
            self.rows[ready] = prototype.rows[ready]
            self.states = _grown(prototype.states, prototype.num_states, capacity)
            self.words = prototype.words.copy()
            self.num_states = prototype.num_states
            self.num_words = prototype.num_words
            self._lazy = prototype._lazy.copy()
            self._edges = prototype._edges.copy()
            self._block_firsts = prototype._block_firsts.copy()
            self._block_lexemes = prototype._block_lexemes.copy()
            self._reserved = prototype._reserved.copy()
            self._installed = prototype._installed.copy()
            self._bit_sets = prototype._bit_sets.copy()

    # -- lexeme states ----------------------------------------------------------------------

    def install(self, lexeme: Lexeme) -> int:
        """The start state of a lexeme; equal lexemes share their states."""
        if lexeme.installed_in is self._token:
            return lexeme.installed_at
        key = lexeme.key
        start = self._installed.get(key)
        if start is None:
            start = self._installed[key] = lexeme.install(self)
        lexeme.installed_in = self._token
        lexeme.installed_at = start
        return start

    def new_states(self, count: int, *, ready: bool = True) -> int:
        """The first of ``count`` consecutive new states. Their rows are the caller's to write."""
        first = self.num_states
        self.num_states = end = first + count
        if end > self.limits.max_states:
            raise GrammarTooComplexError(
                "", "states", f"more than {self.limits.max_states} automaton states are needed"
            )
        if end > len(self.rows):
            capacity = max(end, 2 * len(self.rows))
            self.rows = _grown(self.rows, first, capacity)
            self.states = _grown(self.states, first, capacity)
        self.states[first:end] = (ready, -1, -1, -1, -1, -1, -1)
        return first

    def reserve(self, lexeme: Lexeme, local: int) -> int:
        """The state whose row ``lexeme.fill(self, local, row)`` writes when it is first read."""
        key = (lexeme.key, local)
        state = self._reserved.get(key)
        if state is None:
            state = self.new_states(1, ready=False)
            self._reserved[key] = state
            self._lazy[state] = (lexeme, local)
        return state

    def reserve_block(self, lexeme: Lexeme, count: int) -> int:
        """The first of ``count`` states, the i-th of which ``lexeme.fill`` writes as local i."""
        first = self.new_states(count, ready=False)
        self._block_firsts.append(first)
        self._block_lexemes.append(lexeme)
        return first

    def fill(self, state: int) -> None:
        """Make the row of a reserved state ready."""
        known = self._lazy.pop(state, None)
        if known is None:
            block = bisect_right(self._block_firsts, state) - 1
            lexeme, local = self._block_lexemes[block], state - self._block_firsts[block]
        else:
            lexeme, local = known
        row: Row = np.empty(256, np.int32)
        label = lexeme.fill(self, local, row)
        self.rows[state] = row
        if lexeme.has_edges:
            self._edges[state] = (lexeme, local)
        self.states[state, END_LABEL] = label
        self.states[state, READY] = 1

    def edge(self, state: int, byte: int) -> None:
        """Make a row's ``LAZY`` entry ready."""
        lexeme, local = self._edges[state]
        lexeme.edge(self, local, byte, self.rows[state])

    def has_edges(self, state: int, lexeme: Lexeme, local: int) -> None:
        """Let ``lexeme.edge`` write the ``LAZY`` entries of a state's row."""
        self._edges[state] = (lexeme, local)

    def bit_set(self, bits: int) -> int:
        """The offset of a set of labels in ``words``; equal sets share it."""
        offset = self._bit_sets.get(bits)
        if offset is None:
            num_words = max(1, (bits.bit_length() + 63) // 64)
            offset = self.num_words
            self.num_words += 1 + num_words
            if self.num_words > len(self.words):
                self.words = _grown(self.words, offset, 2 * self.num_words)
            self.words[offset] = num_words
            for i in range(num_words):
                self.words[offset + 1 + i] = (bits >> (64 * i)) & 0xFFFF_FFFF_FFFF_FFFF
            self._bit_sets[bits] = offset
        return offset

    def number(self, key: Hashable) -> int:
        """The number of a key that names something within this machine."""
        return self._numbers.setdefault(key, len(self._numbers))

    def bits_at(self, offset: int) -> int:
        """The set of labels at an offset of ``words``, as bits."""
        count = int(self.words[offset])
        return int.from_bytes(self.words[offset + 1 : offset + 1 + count].tobytes(), "little")

    def new_bit_sets(self, sets: NDArray[np.uint64]) -> NDArray[np.int32]:
        """The offsets of new sets of labels; uint64[num_sets, num_words], not looked up."""
        num_sets, num_words = sets.shape
        offset = self.num_words
        self.num_words += num_sets * (num_words + 1)
        if self.num_words > len(self.words):
            self.words = _grown(self.words, offset, 2 * self.num_words)
        block = self.words[offset : self.num_words].reshape(num_sets, num_words + 1)
        block[:, 0] = num_words
        block[:, 1:] = sets
        return np.arange(offset, self.num_words, num_words + 1, dtype=np.int32)

    def make_ready(self, state: int) -> None:
        """Let a state's row be written, but for ``LAZY`` entries."""
        if not self.states[state, READY]:
            self.fill(state)

    def target(self, state: int, byte: int) -> int:
        """A row's entry, made ready if need be."""
        self.make_ready(state)
        if self.rows[state, byte] == LAZY:
            self.edge(state, byte)
        return int(self.rows[state, byte])

    # -- contexts ---------------------------------------------------------------------------

    def intern(self, context: Context) -> Context:
        """The one context with this key."""
        key = context.key
        known = self._context_ids.get(key)
        if known is not None:
            return known
        number = self.num_contexts
        if number >= self.limits.max_contexts:
            raise GrammarTooComplexError(
                "", "states", f"more than {self.limits.max_contexts} contexts are needed"
            )
        context.id = number
        self.has_special |= context.offers_special
        self._context_ids[key] = context
        self.context_list.append(context)
        if number == len(self.contexts):
            self.contexts = _grown(self.contexts, number, 2 * number)
        self.num_contexts = number + 1
        self.contexts[number] = (
            _NOT_ENTERED, -1, NO_FILTER, context.is_end, context.kind, context.captures,
        )  # fmt: skip
        return context

    def enter(self, context: Context) -> int:
        """The lexeme state in which an interned context starts; ``PENDING`` if it isn't known."""
        number = context.id
        start = int(self.contexts[number, START])
        if start == _NOT_ENTERED:
            lexeme = context.lexeme(self)
            start = PENDING if lexeme is None else self.install(lexeme)
            live = context.live()
            self.contexts[number, START] = start
            if live is not None:
                self.contexts[number, LIVE] = self.bit_set(live)
        return start

    def transition(self, context: int, label: int) -> int:
        """What comes after ``label``, with any captured text unknown, as ``transitions`` has it."""
        known = self._after.get((context, label))
        if known is not None:
            return known
        target = self._encoded(self.context_list[context].after(self, label, None))
        self._after[context, label] = target
        offset = int(self.contexts[context, TRANSITIONS])
        if offset < 0 or label >= self.transitions[offset]:
            offset = self._make_room(context, label + 1, offset)
        self.transitions[offset + 1 + label] = target
        return target

    def _encoded(self, after: After) -> int:
        if after is None:
            return -1
        if isinstance(after, Pop):
            return POPPED - after.label
        if not isinstance(after, Push):
            self.enter(after)
            return after.id
        self.enter(after.inner)
        push = after.inner.id, -1 if after.outer is None else after.outer.id, after.plan
        number = self._push_ids.get(push)
        if number is None:
            number = self._push_ids[push] = len(self._push_ids)
            if 3 * number == len(self.pushes):
                self.pushes = _grown(self.pushes, 3 * number, 6 * number)
            self.pushes[3 * number : 3 * number + 3] = push
        return PUSHED - number

    def plan(self, key: Hashable, make: Callable[[], Sequence[int]]) -> int:
        """The offset in ``plans`` of what a key names; ``make`` gives its entries at first."""
        known = self._plan_offsets.get(key)
        if known is not None:
            return known
        entries = make()
        offset = self._plan_offsets[key] = self._num_plan_entries
        self._num_plan_entries += len(entries)
        if self._num_plan_entries > len(self.plans):
            self.plans = _grown(self.plans, offset, 2 * self._num_plan_entries)
        self.plans[offset : self._num_plan_entries] = entries
        return offset

    def _make_room(self, context: int, num_labels: int, old: int) -> int:
        """Space for a context's transitions: their number, then one for each label."""
        size = max(4, 1 << (num_labels - 1).bit_length())
        offset = self.num_transitions
        self.num_transitions += size + 1
        if self.num_transitions > len(self.transitions):
            grown = np.full(2 * self.num_transitions, UNKNOWN, np.int32)
            grown[:offset] = self.transitions[:offset]
            self.transitions = grown
        self.transitions[offset] = size
        if old >= 0:
            count = int(self.transitions[old])
            self.transitions[offset + 1 : offset + 1 + count] = self.transitions[
                old + 1 : old + 1 + count
            ]
        self.contexts[context, TRANSITIONS] = offset
        return offset

    def is_live(self, live: int, label: int, frames: NDArray[np.int64]) -> bool:
        """Whether a label is among a position's live ones (see ``records.NO_FILTER``)."""
        if live == NO_FILTER:
            return True
        sets, offset = (self.words, live) if live >= 0 else (frames, -2 - live)
        word = label >> 6
        return word < sets[offset] and bool(int(sets[offset + 1 + word]) >> (label & 63) & 1)

    # -- positions --------------------------------------------------------------------------

    def first_position(self, context: Context) -> NDArray[np.int64]:
        """int64[NUM_COLUMNS]: the beginning of an interned context, with nothing around it."""
        row = np.zeros(NUM_COLUMNS, np.int64)
        self.place(row, context)
        row[USED] = 1
        return row

    def place(self, row: NDArray[np.int64], context: Context) -> None:
        """Let a position be at the beginning of an interned context."""
        row[STATE] = self.enter(context)
        row[CONTEXT] = context.id
        row[LIVE_AT] = self.contexts[context.id, LIVE]

    def frozen(self, trail: Trail) -> Hashable:
        """The current position in a form that is equal for equal positions (``Trail.thaw``)."""
        context = self.context_list[int(trail.position[CONTEXT])]
        keeps_text = context.captures or context.kind != PLAIN
        return trail.freeze(self.plans, keeps_text=keeps_text)

    def supply(self, status: int, trail: Trail, row: NDArray[np.int64]) -> int:
        """Work out what compiled code asked for, as ``row`` has it.

        Returns:
            The transition that it asked for with a text; else ``UNKNOWN``.
        """
        asked, asked_too = row[ASKED : ASKED_TOO + 1].tolist()
        if status == NEED_TRANSITION:
            self.transition(asked, asked_too)
        elif status == NEED_ROW:
            self.fill(asked)
        elif status == NEED_EDGE:
            self.edge(asked, asked_too)
        elif status == NEED_TEXT:
            text = trail.text[row[BEGIN] : row[ASKED_END]].tobytes()
            return self._encoded(self.context_list[asked].after(self, asked_too, text))
        else:
            trail.more_frames()
        return UNKNOWN

    def advance(self, trail: Trail, data: NDArray[np.uint8], first: int, last: int) -> bool:
        """Write the position after ``data[first:last]`` behind the trail's current one.

        False if the text isn't allowed. The trail has room for the text.
        """
        resume, given = 0, UNKNOWN
        while True:
            status = advance(
                trail.positions, trail.at, data, first, last, resume, given, trail.frames,
                trail.text, self.rows, self.states, self.contexts, self.transitions, self.words,
                self.pushes, self.plans,
            )  # fmt: skip
            if status == DONE:
                return True
            if status == REFUSED:
                return False
            resume, given = 1, self.supply(status, trail, trail.positions[trail.at + 1])

    def leave(self, trail: Trail, at: int) -> bool:
        """Write the position that ``positions[at]`` is as well, once its lexeme ends, to the next.

        False if the lexeme can't end there.
        """
        given = UNKNOWN
        while True:
            status = leave(
                trail.positions, at, given, trail.frames, trail.text, self.states, self.contexts,
                self.transitions, self.words, self.pushes, self.plans,
            )  # fmt: skip
            if status == DONE:
                return True
            if status == REFUSED:
                return False
            given = self.supply(status, trail, trail.positions[at + 1])

    def borders(self, trail: Trail) -> Iterator[NDArray[np.int64]]:
        """The current position, then as it is once lexemes that can end there have ended."""
        at = trail.at
        yield trail.positions[at]
        while self.leave(trail, at):
            at += 1
            trail.make_room(at)
            yield trail.positions[at]

    def is_accepting(self, trail: Trail) -> bool:
        """Whether the text may end at the current position."""
        return any(self.contexts[row[CONTEXT], IS_END] for row in self.borders(trail))


def _grown(array: NDArray, used: int, capacity: int) -> NDArray:  # type: ignore[type-arg]
    bigger = np.empty((capacity, *array.shape[1:]), array.dtype)
    bigger[:used] = array[:used]
    return bigger

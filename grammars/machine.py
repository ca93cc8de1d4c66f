"""A ``Machine`` numbers a grammar's lexeme states and contexts and keeps them as arrays.

The arrays are what the compiled walk (``walk.py``) reads. Rows and transitions are filled in when
the walk, or a matcher, first needs them.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

from .automaton import DEAD, LAZY, After, Context, Lexeme, Pop, Push, Row
from .errors import GrammarTooComplexError
from .limits import CompileLimits

# Columns of ``Machine.states``.
READY, END_LABEL, REACH, ROOM, ROOM_LABEL, SLICE = range(6)
# Columns of ``Machine.contexts``.
START, TRANSITIONS, LIVE, _IS_END = range(4)

UNKNOWN = -2
"""A transition that has not been asked for."""

POPPED, PUSHED = -3, -5
"""Transitions: ``POPPED - label`` pops, ``PUSHED - i`` pushes the i-th of ``Machine.pushes``."""

PENDING = 0
"""The lexeme state that stands for "depends on a text that the walk does not know"."""

UNBOUNDED_ROOM = 1 << 20


_FIRST_CAPACITY = 4096
"""Rows that are set aside at first. What isn't written takes no memory."""


class Machine:
    """The states and contexts of one grammar.

    Attributes:
        rows: int32[capacity, 256]: a state's targets.
        states: int32[capacity, 6]: READY (is the row filled), END_LABEL (the label with which
            the lexeme may end here, or -1), REACH (offset into ``words`` of the labels reachable
            from here, or -1: no filter), ROOM (if not -1: the state is at a border inside a
            string, of which exactly so many more characters are allowed), ROOM_LABEL (provided
            that this label is live; -1: always), SLICE (by the vocabulary's slice of this index).
        contexts: int32[capacity, 4]: START (the lexeme's start state), TRANSITIONS (offset into
            ``transitions``), LIVE (offset into ``words`` of the live labels, or -1), IS_END.
        transitions: int32[...]: by context offset + label, the next context, -1, ``UNKNOWN``, or a
            push or pop.
        masked_as: states in which exactly the same tokens are allowed as in another state.
        words: uint64[...]: bit sets; each is its number of words, then the words.
        pushes: int32[...]: an inner context and the outer one, at 2 * i and 2 * i + 1.
        stacks: int32[...]: the stacks of outer contexts, as a tree; node i's parent is at 2 * i,
            its outer context at 2 * i + 1. Node 0 is the empty stack.
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
        self.contexts: NDArray[np.int32] = np.empty((64, 4), np.int32)
        self.transitions: NDArray[np.int32] = np.full(1024, UNKNOWN, np.int32)
        self.num_contexts = 0
        self.num_transitions = 0
        self._numbers: dict[Hashable, int] = {}
        self._starts: list[int] = []
        self.pushes: NDArray[np.int32] = np.zeros(64, np.int32)
        self._push_ids: dict[tuple[int, int], int] = {}
        self._push_list: list[tuple[int, int]] = []
        self.stacks: NDArray[np.int32] = np.full(1024, -1, np.int32)
        self._stack_ids: dict[tuple[int, int], int] = {(-1, -1): 0}
        self._stack_list: list[tuple[int, int]] = [(-1, -1)]
        self._places: dict[tuple[int, int], int] = {}
        self._place_list: list[tuple[int, int]] = []
        self._after: dict[tuple[int, int], int] = {}
        self._context_ids: dict[Hashable, Context] = {}
        self.context_list: list[Context] = []
        self.has_special = False
        if prototype is None:
            self.rows: NDArray[np.int32] = np.empty((_FIRST_CAPACITY, 256), np.int32)
            self.states: NDArray[np.int32] = np.empty((_FIRST_CAPACITY, 6), np.int32)
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
        self.states[first:end] = (ready, -1, -1, -1, -1, -1)
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

    def target(self, state: int, byte: int) -> int:
        """A row's entry, made ready if need be."""
        if not self.states[state, READY]:
            self.fill(state)
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
        self._starts.append(-1)
        if number == len(self.contexts):
            self.contexts = _grown(self.contexts, number, 2 * number)
        self.num_contexts = number + 1
        self.contexts[number] = (PENDING, -1, -1, context.is_end)
        return context

    def enter(self, context: Context) -> int:
        """The lexeme state in which an interned context starts; ``PENDING`` if it isn't known."""
        number = context.id
        start = self._starts[number]
        if start < 0:
            lexeme = context.lexeme(self)
            start = PENDING if lexeme is None else self.install(lexeme)
            live = context.live()
            self._starts[number] = start
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
        pair = after.inner.id, after.outer.id
        number = self._push_ids.get(pair)
        if number is None:
            number = self._push_ids[pair] = len(self._push_list)
            self._push_list.append(pair)
            if 2 * number == len(self.pushes):
                self.pushes = _grown(self.pushes, 2 * number, 4 * number)
            self.pushes[2 * number : 2 * number + 2] = pair
        return PUSHED - number

    def stack(self, parent: int, outer: int) -> int:
        """The stack with one more outer context on it."""
        pair = parent, outer
        number = self._stack_ids.get(pair)
        if number is None:
            number = self._stack_ids[pair] = len(self._stack_list)
            self._stack_list.append(pair)
            self.reserve_stacks(1)
            self.stacks[2 * number : 2 * number + 2] = pair
        return number

    @property
    def num_stacks(self) -> int:
        """The number of stacks; the walk uses ``stacks`` past them for its own."""
        return len(self._stack_list)

    def reserve_stacks(self, count: int) -> None:
        """Make room for more stacks."""
        needed = 2 * (len(self._stack_list) + count)
        if needed > len(self.stacks):
            self.stacks = _grown(self.stacks, len(self.stacks), 2 * needed)

    def place(self, context: int, stack: int) -> int:
        """The number of a context with a stack."""
        pair = context, stack
        number = self._places.get(pair)
        if number is None:
            number = self._places[pair] = len(self._place_list)
            self._place_list.append(pair)
        return number

    def context_and_stack(self, place: int) -> tuple[int, int]:
        """What ``place`` numbered."""
        return self._place_list[place]

    def context_at(self, place: int) -> Context:
        """The context of a place."""
        return self.context_list[self._place_list[place][0]]

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

    # -- positions --------------------------------------------------------------------------

    def viable(self, state: int, context: int) -> bool:
        """Whether a live label can still be reached."""
        reach = int(self.states[state, REACH])
        live = int(self.contexts[context, LIVE])
        if reach < 0 or live < 0:
            return True
        words = self.words
        for i in range(1, 1 + int(min(words[reach], words[live]))):
            if words[reach + i] & words[live + i]:
                return True
        return False

    def is_live(self, context: int, label: int) -> bool:
        """Whether the context lets its lexeme end with ``label``, as far as ``live`` says."""
        live = int(self.contexts[context, LIVE])
        if live < 0:
            return True
        word = label >> 6
        return word < self.words[live] and bool(
            (int(self.words[live + 1 + word]) >> (label & 63)) & 1
        )

    def first_place(self, context: Context) -> tuple[int, int]:
        """The state and place at the beginning of an interned context, with nothing around it."""
        return self.enter(context), self.place(context.id, 0)

    def step(
        self, state: int, place: int, text: bytes | bytearray, begin: int, at: int
    ) -> tuple[int, int, int] | None:
        """The position after byte ``text[at]``, or None if it is not allowed.

        The current lexeme began at ``text[begin]``; the result names state, place and the current
        lexeme's beginning then.
        """
        byte = text[at]
        context = self._place_list[place][0]
        while True:
            if not self.states[state, READY]:
                self.fill(state)
            target = int(self.rows[state, byte])
            if target == LAZY:
                self.edge(state, byte)
                continue
            if target >= 0:
                return (target, place, begin) if self.viable(target, context) else None
            if target != DEAD:
                label = -2 - target
                if not self.is_live(context, label):
                    return None
                place = self.follow(place, label, text, begin, at + 1)
                return None if place < 0 else (self.start_of(place), place, at + 1)
            label = int(self.states[state, END_LABEL])
            if label < 0 or not self.is_live(context, label):
                return None
            place = self.follow(place, label, text, begin, at)
            if place < 0:
                return None
            context = self._place_list[place][0]
            state, begin = self._starts[context], at

    def start_of(self, place: int) -> int:
        """The lexeme state in which an entered place's context starts."""
        return self._starts[self._place_list[place][0]]

    def follow(self, place: int, label: int, text: bytes | bytearray, begin: int, end: int) -> int:
        """The place after ``label`` ended the lexeme ``text[begin:end]``; -1 if there is none."""
        context, stack = self._place_list[place]
        source = self.context_list[context]
        if source.captures:
            code = self._encoded(source.after(self, label, bytes(text[begin:end])))
        else:
            code = self.transition(context, label)
        while POPPED >= code > PUSHED:
            if stack == 0:
                return -1
            stack, outer = self._stack_list[stack]
            code = self.transition(outer, POPPED - code)
        if code >= 0:
            return self.place(code, stack)
        if code == -1:
            return -1
        inner, outer = self._push_list[PUSHED - code]
        return self.place(inner, self.stack(stack, outer))

    def is_accepting(self, state: int, place: int, text: bytes | bytearray, begin: int) -> bool:
        """Whether the text may end here; the current lexeme is ``text[begin:]``."""
        while True:
            context = self._place_list[place][0]
            if self.context_list[context].is_end:
                return True
            if not self.states[state, READY]:
                self.fill(state)
            label = int(self.states[state, END_LABEL])
            if label < 0 or not self.is_live(context, label):
                return False
            place = self.follow(place, label, text, begin, len(text))
            if place < 0:
                return False
            state, begin = self.start_of(place), len(text)


def _grown(array: NDArray, used: int, capacity: int) -> NDArray:  # type: ignore[type-arg]
    bigger = np.empty((capacity, *array.shape[1:]), array.dtype)
    bigger[:used] = array[:used]
    return bigger

"""A ``StateTable`` numbers the states of lexemes and keeps them as arrays.

The arrays are what compiled code reads. Rows are computed on first use. Grammars of one compiler
share a state table, so that their equal parts share states; these are kept as long as one of the
grammars is.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Hashable
from typing import ClassVar, Concatenate, NamedTuple, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from ramet.grammars.errors import GrammarTooComplexError

from .rows import DEAD, LAZY, Row
from .stack_records import NO_FILTER
from .tables import END_LABEL, READY

UNBOUNDED_ROOM = 1 << 20

P = ParamSpec("P")
T = TypeVar("T")

_CAPACITY = 1024

_MANY_STATES, _LARGE_CAPACITY = 8192, 65_536
"""From this many states on, a table grows to this capacity in one go: rows that aren't written take
no memory, and copying more of them later would delay a mask."""


def _locked(
    method: Callable[Concatenate[StateTable, P], T],
) -> Callable[Concatenate[StateTable, P], T]:
    """A method that holds the state table's lock."""

    def locked(self: StateTable, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self.lock:
            return method(self, *args, **kwargs)

    locked.__doc__ = method.__doc__
    return locked


class Lexeme(ABC):
    """A byte automaton with labelled ends, installed into a state table on first use.

    A lexeme ends in one of two ways. A byte may be its last (a closing quote): the row holds
    ``ended(label)``. Or it may end before a byte that it does not have (a number): ``fill``
    returns the label, and the byte is read by the context that follows. Where both are possible
    the lexeme goes on, so what follows such a lexeme must not begin with a byte that continues it.
    """

    key: Hashable
    """Equal keys mean equal automata with equal labels."""

    installed_in: object = None
    installed_at: int = -1
    """The identity of the state table that last installed it, and the start state there; set by the
    table."""

    has_ends: ClassVar[bool] = False
    """Whether ``ends`` knows the shortest ends from some states."""

    has_edges: ClassVar[bool] = False
    """Whether ``fill`` leaves ``LAZY`` entries to ``edge``."""

    @abstractmethod
    def install(self, state_table: StateTable) -> int:
        """The state table's number of the start state."""

    def fill(self, state_table: StateTable, local: int, row: Row) -> int:
        """Write the row of the state that was reserved as ``state_table.reserve(self, local)``.

        Returns the label with which the lexeme may end in this state, or -1.
        """
        raise NotImplementedError(f"{type(self).__name__} has no lazy states")

    def shortest_end(self, state_table: StateTable, state: int) -> LexemeEnd | None:
        """A shortest end from a state of the state table; None if it has to be searched."""
        return None

    def ends(self, local: int) -> list[tuple[bytes, int, bool]] | None:
        """By label, a shortest end from a reserved state, as ``LexemeEnd`` has it; None: search."""
        return None

    def edge(self, state_table: StateTable, local: int, byte: int, row: Row) -> None:
        """Replace ``row[byte]``, which is ``LAZY``; other such entries may be replaced with it."""
        raise NotImplementedError(f"{type(self).__name__} has no lazy entries")


class LexemeEnd(NamedTuple):
    """One way to end a lexeme.

    Attributes:
        text: the bytes from the state to the end.
        label: the label with which the lexeme ends.
        is_open: the lexeme ends before the next byte, not with the text's last byte.
    """

    text: bytes
    label: int
    is_open: bool


class StateTable:
    """The lexeme states of some grammars.

    Attributes:
        rows: int32[capacity, 256]: a state's targets.
        states: int32[capacity, 7]: READY (is the row filled), END_LABEL (the label with which
            the lexeme may end here, or -1), REACH (offset into ``words`` of the labels reachable
            from here, or -1: no filter), ROOM (if not -1: the state is at a border inside a
            string, of which exactly that many more characters are allowed), ROOM_LABEL (provided
            that this label is live; -1: always; less than that: provided that all labels at
            ``words[-2 - ROOM_LABEL]`` are), SLICE (by the vocabulary's slice of this index),
            NAME_LABEL (a property's name with this label is complete here; or -1).
        words: uint64[...]: bit sets; each is its number of words, then the words. The sets of the
            labels 0 and 1 are at twice their value.
        version: changes when one of these arrays is replaced.
        num_states: how many states there are; the first are ``PENDING`` and ``UNSURE``.
        masked_as: states in which exactly the same tokens are allowed as in another state.
        closes_as: states inside strings in which as many characters are allowed as their ``ROOM``
            says, and which close as another state does.
        fresh: new states whose masks are likely to be needed.
        tables: states that are looked up by number, by what each table is of.
        longest_token: the length in bytes of the vocabulary's longest token.
        lock: held while anything is added; to be held while the arrays are read.
    """

    def __init__(
        self, max_states: int, *, longest_token: int = 1 << 30, capacity: int = _CAPACITY
    ) -> None:
        """
        Args:
            max_states: beyond it, ``GrammarTooComplexError``.
            capacity: preallocated rows; those that aren't written take no memory.
        """
        self._max_states = max_states
        self.longest_token = longest_token
        self.masked_as: dict[int, int] = {}
        self.closes_as: dict[int, int] = {}
        self.fresh: list[int] = []
        # Lexemes identify the table by it, since they must not keep the table alive.
        self._token = object()
        self.lock = threading.RLock()
        self.rows: NDArray[np.int32] = np.empty((capacity, 256), np.int32)
        self.states: NDArray[np.int32] = np.empty((capacity, 7), np.int32)
        self.words: NDArray[np.uint64] = np.zeros(256, np.uint64)
        self.version = 0
        self.num_states = 0
        self.num_words = 0
        self._lazy: dict[int, tuple[Lexeme, int]] = {}
        self._edges: dict[int, tuple[Lexeme, int]] = {}
        self._with_ends: dict[int, tuple[Lexeme, int]] = {}
        self._block_firsts: list[int] = []
        self._block_lexemes: list[Lexeme] = []
        self._reserved: dict[tuple[Hashable, int], int] = {}
        self._installed: dict[Hashable, int] = {}
        self._bit_sets: dict[int, int] = {}
        self.tables: dict[Hashable, NDArray[np.int32]] = {}
        self.rows[self.new_states(1)] = DEAD
        # Never filled: it has no transitions by bytes.
        self.rows[self.new_states(1, ready=False)] = DEAD
        for bits in range(4):
            assert self.bit_set(bits) == 2 * bits

    @property
    def num_bytes(self) -> int:
        """Approximate memory use."""
        return self.num_states * (4 * 256 + 28 + 200) + 8 * self.num_words

    @_locked
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
        if end > self._max_states:
            raise GrammarTooComplexError(
                "", "states", f"more than {self._max_states} automaton states are needed"
            )
        if end > len(self.rows):
            capacity = max(2 * len(self.rows), 0 if end < _MANY_STATES else _LARGE_CAPACITY)
            capacity = max(end, min(capacity, self._max_states))
            self.rows = _grown(self.rows, first, capacity)
            self.states = _grown(self.states, first, capacity)
            self.version += 1
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

    def reserve_all(self, lexeme: Lexeme, locals_: NDArray[np.int32]) -> NDArray[np.int32]:
        """``reserve`` for many, of a lexeme that numbers its states from 0 on."""
        key = ("reserved", lexeme.key)
        table = self.tables.get(key)
        most = int(locals_.max(initial=0))
        if table is None or most >= len(table):
            longer = np.full(2 * most + 64, -1, np.int32)
            if table is not None:
                longer[: len(table)] = table
            table = self.tables[key] = longer
        numbers = table[locals_]
        if (numbers < 0).any():
            new = np.unique(locals_[numbers < 0])
            first = self.new_states(len(new), ready=False)
            table[new] = np.arange(first, first + len(new), dtype=np.int32)
            for number, local in enumerate(new.tolist(), first):
                self._lazy[number] = (lexeme, local)
            numbers = table[locals_]
        return numbers

    def reserve_block(self, lexeme: Lexeme, count: int) -> int:
        """The first of ``count`` states, the i-th of which ``lexeme.fill`` writes as local i."""
        first = self.new_states(count, ready=False)
        self._block_firsts.append(first)
        self._block_lexemes.append(lexeme)
        return first

    @_locked
    def fill(self, state: int) -> None:
        """Computes the row of a reserved state."""
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
        if lexeme.has_ends:
            self._with_ends[state] = (lexeme, local)
        self.states[state, END_LABEL] = label
        self.states[state, READY] = 1

    @_locked
    def edge(self, state: int, byte: int) -> None:
        """Computes a row's ``LAZY`` entry."""
        lexeme, local = self._edges[state]
        lexeme.edge(self, local, byte, self.rows[state])

    def origin(self, state: int) -> tuple[Lexeme, int] | None:
        """The lexeme of a state that was reserved by itself, and its number there."""
        return self._lazy.get(state)

    @_locked
    def shortest_ends(self, state: int) -> list[LexemeEnd] | None:
        """By label, a shortest end of the lexeme from a state; None where it is to be searched."""
        self.make_ready(state)
        known = self._with_ends.get(state)
        ends = None if known is None else known[0].ends(known[1])
        return None if ends is None else [LexemeEnd(*end) for end in ends]

    def has_edges(self, state: int, lexeme: Lexeme, local: int) -> None:
        """Let ``lexeme.edge`` write the ``LAZY`` entries of a state's row."""
        self._edges[state] = (lexeme, local)

    @_locked
    def bit_set(self, bits: int) -> int:
        """The offset of a set of labels in ``words``; equal sets share it."""
        offset = self._bit_sets.get(bits)
        if offset is None:
            num_words = max(1, (bits.bit_length() + 63) // 64)
            offset = self.num_words
            self.num_words += 1 + num_words
            if self.num_words > len(self.words):
                self.words = _grown(self.words, offset, 2 * self.num_words)
                self.version += 1
            self.words[offset] = num_words
            for i in range(num_words):
                self.words[offset + 1 + i] = (bits >> (64 * i)) & 0xFFFF_FFFF_FFFF_FFFF
            self._bit_sets[bits] = offset
        return offset

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
            self.version += 1
        block = self.words[offset : self.num_words].reshape(num_sets, num_words + 1)
        block[:, 0] = num_words
        block[:, 1:] = sets
        return np.arange(offset, self.num_words, num_words + 1, dtype=np.int32)

    @_locked
    def make_ready(self, state: int) -> None:
        """Computes a state's row, except for ``LAZY`` entries, unless it is there."""
        if not self.states[state, READY]:
            self.fill(state)

    @_locked
    def target(self, state: int, byte: int) -> int:
        """A row's entry, computed if necessary."""
        self.make_ready(state)
        while self.rows[state, byte] == LAZY:  # Again if the arrays were replaced on the way.
            self.edge(state, byte)
        return int(self.rows[state, byte])

    def are_live(self, live: int, labels: int, frames: NDArray[np.int64]) -> bool:
        """Whether the labels that a state's ``ROOM_LABEL`` names are all live."""
        if live == NO_FILTER or labels == -1:
            return True
        if labels >= 0:
            return self.is_live(live, labels, frames)
        return self.bits_at(-2 - labels) & ~self.live_bits(live, frames) == 0

    def live_bits(self, live: int, frames: NDArray[np.int64]) -> int:
        """A position's live labels, which are not all of them, as bits."""
        if live >= 0:
            return self.bits_at(live)
        first = -2 - live
        return int.from_bytes(frames[first + 1 : first + 1 + frames[first]].tobytes(), "little")

    def is_live(self, live: int, label: int, frames: NDArray[np.int64]) -> bool:
        """Whether a label is among a position's live ones (see ``stack_records.NO_FILTER``)."""
        if live == NO_FILTER:
            return True
        sets, offset = (self.words, live) if live >= 0 else (frames, -2 - live)
        word = label >> 6
        return word < sets[offset] and bool(int(sets[offset + 1 + word]) >> (label & 63) & 1)


def _grown(array: NDArray, used: int, capacity: int) -> NDArray:  # type: ignore[type-arg]
    bigger = np.empty((capacity, *array.shape[1:]), array.dtype)
    bigger[:used] = array[:used]
    return bigger

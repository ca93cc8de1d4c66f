"""A ``ContextTable`` numbers a grammar's contexts and keeps them as arrays.

A *context* determines which lexeme comes next and, by the label with which that lexeme ends, which
context follows; a JSON document's contexts form a stack. A position in a grammar is a pair (lexeme
state, context). Both are made as they are needed, so that the mask walk is compiled code over
arrays (see ``pushdown_table.py``).
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from ramet.grammars.errors import GrammarTooComplexError
from ramet.grammars.limits import CompileLimits

from .stack_records import NO_FILTER
from .state_table import Lexeme, LexemeEnd, StateTable
from .tables import LIVE, PENDING, POPPED, PUSHED, START, TRANSITIONS, UNKNOWN

_NOT_ENTERED = -1
_NUM_TEXTS = 64
_BYTES, _CONTEXT_BYTES = 40_000, 1_000
"""Estimated memory of a pushdown table with its schema's formulas, and of a context's objects."""


class Context(ABC):
    """What may come next at a lexeme's border. Immutable; a pushdown table interns it by
    ``key``."""

    __slots__ = ("id",)

    id: int
    """The pushdown table's number, set when it is interned."""

    is_end: ClassVar[bool] = False
    """Whether the text may end here and nothing may follow."""

    kind: ClassVar[int] = 0
    """One of ``transitions.PLAIN`` and the kinds after it."""

    may_close: bool = False
    """Whether a closing bracket may come in place of an object's key or of a value."""

    captures: ClassVar[bool] = False
    """Whether ``after`` depends on the lexeme's text, not on its label alone."""

    offers_special: ClassVar[bool] = False
    """Whether ``special`` may offer anything."""

    @property
    @abstractmethod
    def key(self) -> Hashable:
        """Contexts of one pushdown table with equal keys are the same; name others by their
        ``id``."""

    @abstractmethod
    def lexeme(self, pushdown: ContextTable) -> Lexeme | None:
        """What comes next. None if that depends on a text not known (see ``after``)."""

    def live(self) -> int | None:
        """The labels that may end the lexeme, as a bit set; None allows all.

        The walk drops lexeme states from which no live label can be reached, if the lexeme gave
        their reachable labels to the state table.
        """
        return None

    @abstractmethod
    def after(self, pushdown: ContextTable, label: int, text: bytes | None) -> After:
        """The context after the lexeme has ended with ``label``; None if it may not.

        An inner text that doesn't depend on its surroundings (a JSON value) is best pushed: its
        contexts are then shared by all places where it stands.

        ``text`` is the lexeme's text, given if ``captures`` is set and the text is known. While a
        mask is computed it is None: the answer then must allow what any text of this label would
        allow, up to a context whose ``lexeme`` is None; tokens that reach that far are decided
        one by one with their texts.
        """

    def likely(self) -> Iterable[int]:
        """The labels whose transitions are worth computing in advance."""
        return ()

    def shortest_end(self, pushdown: ContextTable, state: int) -> LexemeEnd | None:
        """A shortest end of the lexeme from one of its states; None if it has to be searched."""
        return None

    def completing_labels(self) -> list[int] | None:
        """The labels that a shortest completion may end the lexeme with; None: any of them."""
        return None

    def special(self, pushdown: ContextTable) -> Mapping[int, Context]:
        """Special tokens allowed at this context's beginning, and the context after each."""
        return {}


class Push(NamedTuple):
    """Pushes an inner text that starts at ``inner``. When it is popped with a label,
    ``outer.after`` gives the next context; ``outer`` has no lexeme of its own.

    With a ``plan`` (see ``PushdownTable.plan``) the inner text is an object or array that records
    describe, above ``outer`` if there is one.
    """

    inner: Context
    outer: Context | None
    plan: int = -1


class Pop(NamedTuple):
    """Pops: the inner text ends with a label, 0 or 1."""

    label: int


After = Context | Push | Pop | None


class TokenBounds(Protocol):
    """Bounds on how many tokens begin in some part of a text, which bytes alone don't show.

    Attributes:
        relaxed_start: what begins the same grammar without the bounds.
    """

    @property
    def relaxed_start(self) -> Callable[[ContextTable], Context]: ...

    def count(
        self,
        pushdown: ContextTable,
        position: NDArray[np.int64],
        counts: tuple[tuple[int, int], ...],
        *,
        by_bytes: bool,
    ) -> tuple[tuple[int, int], ...]:
        """Moves a position at a token's end to the start of the next token.

        Args:
            pushdown: the position's; locked.
            position: int64[NUM_COLUMNS].
            counts: how many tokens had begun, by part, before that token; () at the beginning.
            by_bytes: bytes were read, not a token.

        Returns:
            The counts now.
        """
        ...

    def num_lacking(self, counts: tuple[tuple[int, int], ...]) -> int:
        """How many more tokens the open part needs at least; of several, the one with fewest."""
        ...


class ContextTable:
    """The contexts of one grammar.

    Attributes:
        state_table: the lexeme states.
        contexts: int32[capacity, 6]: START (the lexeme's start state), TRANSITIONS (offset into
            ``transitions``), LIVE (offset into ``words`` of the live labels, or -1), IS_END,
            CONTEXT_KIND and CAPTURES (see ``Context``).
        transitions: int32[...]: by context offset + label, the next context, -1, ``UNKNOWN``, or a
            push or pop.
        pushes: int32[...]: an inner context, the outer one, and the plan of a record (or -1 each),
            at 3 * i and after.
        plans: int32[...]: the fixed properties of objects and arrays that records describe; see
            ``stack_records.py``.
        context_list: the contexts.
        has_special: whether any context offers special tokens.
        token: distinguishes lexemes named by this pushdown table's numbers from other tables'.
        num_texts_requested: how often contexts computed what follows a text.
        token_bounds: enforces bounds on the number of tokens, if there are any.
        lock: to be held while a matcher reads or advances. The state table's lock is taken within
            it, and only while its arrays are read or added to: making contexts may take long.
    """

    def __init__(self, limits: CompileLimits, state_table: StateTable) -> None:
        self.limits = limits
        self.state_table = state_table
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
        self.token = object()
        self._after_text: dict[tuple[int, int, bytes], int] = {}
        self.num_texts_requested = 0
        self._context_ids: dict[Hashable, Context] = {}
        self.context_list: list[Context] = []
        self.has_special = False
        self.token_bounds: TokenBounds | None = None
        self._version = 0
        self._table: NDArray[np.int64] = np.zeros(0, np.int64)
        self._table_of = -1

    @classmethod
    def like(cls, other: Self) -> Self:
        """A pushdown table that starts with another one's contexts."""
        made = cls(other.limits, other.state_table)
        made.contexts = other.contexts.copy()
        made.transitions = other.transitions.copy()
        made.pushes = other.pushes.copy()
        made.plans = other.plans.copy()
        made.num_contexts = other.num_contexts
        made.num_transitions = other.num_transitions
        made._num_plan_entries = other._num_plan_entries
        made._numbers = other._numbers.copy()
        made._push_ids = other._push_ids.copy()
        made._plan_offsets = other._plan_offsets.copy()
        made._after = other._after.copy()
        made._context_ids = other._context_ids.copy()
        made.context_list = other.context_list.copy()
        made.has_special = other.has_special
        return made

    @property
    def num_bytes(self) -> int:
        """Approximate memory use."""
        flat = self.contexts.nbytes + self.transitions.nbytes + self.pushes.nbytes
        return _BYTES + flat + self.plans.nbytes + _CONTEXT_BYTES * self.num_contexts

    def number(self, key: Hashable) -> int:
        """The number of a key that names something within this pushdown."""
        return self._numbers.setdefault(key, len(self._numbers))

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
            self._version += 1
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
            start = PENDING if lexeme is None else self.state_table.install(lexeme)
            live = context.live()
            self.contexts[number, START] = start
            if live is not None:
                self.contexts[number, LIVE] = self.state_table.bit_set(live)
        return start

    def transition(self, context: int, label: int) -> int:
        """The transition by ``label`` while any captured text is unknown, as in ``transitions``."""
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

    def transition_after(self, context: int, label: int, text: bytes) -> int:
        """The transition by ``label`` with the captured text. The last one is cached."""
        key = (context, label, text)
        known = self._after_text.get(key)
        if known is None:
            self.num_texts_requested += 1
            known = self._encoded(self.context_list[context].after(self, label, text))
            if len(self._after_text) == _NUM_TEXTS:
                self._after_text.clear()
            self._after_text[key] = known
        return known

    def likely_transitions(self) -> Iterator[tuple[int, int]]:
        """Computes likely transitions and yields the context and label of each.

        Depth first by each context's first label, so that a schema's most common path comes first;
        then breadth first by the other labels.

        Raises:
            GrammarTooComplexError: at the first transition that can't be computed.
        """
        others: deque[tuple[int, Iterator[int]]] = deque()
        num_seen = 0
        while num_seen < len(self.context_list) or others:
            if num_seen < len(self.context_list):
                context = self.context_list[num_seen]
                at, labels = num_seen, iter(context.likely())
                num_seen += 1
                others.append((at, labels))
            else:
                at, labels = others[0]
            label = next(labels, None)
            if label is None:
                if others[0][1] is labels:
                    others.popleft()
                elif others[-1][1] is labels:
                    others.pop()
            elif (at, label) not in self._after:
                self.transition(at, label)
                yield at, label

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
                self._version += 1
            self.pushes[3 * number : 3 * number + 3] = push
        return PUSHED - number

    def plan(self, key: Hashable, make: Callable[[], Sequence[int]]) -> int:
        """The offset in ``plans`` of a key's entries; ``make`` gives them on first use."""
        known = self._plan_offsets.get(key)
        if known is not None:
            return known
        entries = make()
        offset = self._plan_offsets[key] = self._num_plan_entries
        self._num_plan_entries += len(entries)
        if self._num_plan_entries > len(self.plans):
            self.plans = _grown(self.plans, offset, 2 * self._num_plan_entries)
            self._version += 1
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
            self._version += 1
        self.transitions[offset] = size
        if old >= 0:
            count = int(self.transitions[old])
            self.transitions[offset + 1 : offset + 1 + count] = self.transitions[
                old + 1 : old + 1 + count
            ]
        self.contexts[context, TRANSITIONS] = offset
        return offset


def _grown(array: NDArray, used: int, capacity: int) -> NDArray:  # type: ignore[type-arg]
    bigger = np.empty((capacity, *array.shape[1:]), array.dtype)
    bigger[:used] = array[:used]
    return bigger

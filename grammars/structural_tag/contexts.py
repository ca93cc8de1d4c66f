"""The contexts of a structural tag: segments of its automaton, and JSON values between them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

import numpy as np
from numpy.typing import NDArray

from ramet.grammars.ebnf.automaton import Configuration
from ramet.grammars.json_schema.solver.frames import Frame
from ramet.grammars.pushdown.automaton import NOTHING
from ramet.grammars.pushdown.context_table import After, Context, ContextTable
from ramet.grammars.pushdown.rows import Row
from ramet.grammars.pushdown.state_table import Lexeme, StateTable
from ramet.grammars.pushdown.tables import STATE

from .automaton import BorderExit, Counts, TagAutomaton, ValueExit
from .expressions import JsonValue


def context_of(
    pushdown: ContextTable, automaton: TagAutomaton, configurations: frozenset[Configuration]
) -> Context:
    """What may come next when the text has these readings."""
    state = automaton.intern(configurations)
    value = automaton.value_at(state)
    if value is not None and len(configurations) == 1:
        return value_context(pushdown, automaton, value)
    return pushdown.intern(StretchContext(automaton, state))


def value_context(pushdown: ContextTable, automaton: TagAutomaton, exit_: ValueExit) -> Context:
    """The beginning of a JSON value."""
    thing = automaton.foreign[exit_.index]
    assert isinstance(thing, JsonValue)
    return pushdown.intern(thing.schema.value(ValueFrame(pushdown, automaton, exit_), (b"",)))


class _Stretch(Lexeme):
    """The automaton's states, all of one pushdown."""

    def __init__(self, automaton: TagAutomaton) -> None:
        self.automaton = automaton
        self.key = ("stretch", automaton.key)

    def install(self, state_table: StateTable) -> int:
        return self.state(state_table, self.automaton.start)

    def state(self, state_table: StateTable, local: int) -> int:
        """The state table's number of a state."""
        number = state_table.reserve(self, local)
        self.automaton.states_by_number[number] = local
        return number

    def fill(self, state_table: StateTable, local: int, row: Row) -> int:
        targets = self.automaton.row_with_exits(local)
        row[:] = targets
        for target in set(targets.tolist()):
            if target >= 0:
                row[targets == target] = self.state(state_table, target)
        return self.automaton.border_label(local)


class _StretchFrom(Lexeme):
    """A stretch of the automaton that begins in a state."""

    def __init__(self, automaton: TagAutomaton, state: int) -> None:
        self.stretch = _Stretch(automaton)
        self.state = state
        self.key = ("stretch", automaton.key, state)

    def install(self, state_table: StateTable) -> int:
        return self.stretch.state(state_table, self.state)


class TokenBounds:
    """Keeps a sequence's position within the bounds on tokens; see ``pushdown.TokenBounds``."""

    def __init__(
        self, automaton: TagAutomaton, relaxed_start: Callable[[ContextTable], Context]
    ) -> None:
        self.relaxed_start = relaxed_start
        self._automaton = automaton
        self._stretch = _Stretch(automaton)

    def count(
        self, pushdown: ContextTable, position: NDArray[np.int64], counts: Counts, *, by_bytes: bool
    ) -> Counts:
        """Moves a position to a token's beginning; returns the new counts."""
        local = self._automaton.states_by_number.get(int(position[STATE]))
        if local is None:
            return ()
        after, counts = self._automaton.recounted(local, counts, by_bytes=by_bytes)
        if after != local:
            with pushdown.state_table.lock:
                position[STATE] = self._stretch.state(pushdown.state_table, after)
        return counts

    def num_lacking(self, counts: Counts) -> int:
        """How many more tokens the open text needs at least; of several, the one with fewest."""
        return min((self._automaton.num_lacking(*count) for count in counts), default=0)


class StretchContext(Context):
    """A stretch of the automaton, up to a JSON value or to the end."""

    __slots__ = ("automaton", "state")

    def __init__(self, automaton: TagAutomaton, state: int) -> None:
        self.automaton = automaton
        self.state = state

    @property
    def key(self) -> Hashable:
        return ("stretch", self.automaton.key, self.state)

    def lexeme(self, pushdown: ContextTable) -> Lexeme | None:
        return _StretchFrom(self.automaton, self.state)

    def after(self, pushdown: ContextTable, label: int, text: bytes | None) -> Context | None:
        match self.automaton.exits[label]:
            case ValueExit() as exit_:
                return value_context(pushdown, self.automaton, exit_)
            case BorderExit(state):
                value = self.automaton.value_at(state)
                inner = None if value is None else value_context(pushdown, self.automaton, value)
                return pushdown.intern(BorderContext(self.automaton, state, inner))


class BorderContext(Context):
    """No more bytes of this stretch: the text ends, or a special token or a value follows.

    ``value`` is the context of the JSON value, which this one is like in all else.
    """

    __slots__ = ("automaton", "state", "value")

    def __init__(self, automaton: TagAutomaton, state: int, value: Context | None) -> None:
        self.automaton = automaton
        self.state = state
        self.value = value

    @property
    def key(self) -> Hashable:
        return ("border", self.automaton.key, self.state)

    @property
    def is_end(self) -> bool:  # type: ignore[override]
        return self.automaton.is_accepting(self.state)

    @property
    def captures(self) -> bool:  # type: ignore[override]
        return self.value is not None and self.value.captures

    @property
    def offers_special(self) -> bool:  # type: ignore[override]
        return self.automaton.offers_special(self.state)

    def lexeme(self, pushdown: ContextTable) -> Lexeme | None:
        return NOTHING if self.value is None else self.value.lexeme(pushdown)

    def live(self) -> int | None:
        return None if self.value is None else self.value.live()

    def after(self, pushdown: ContextTable, label: int, text: bytes | None) -> After:
        return None if self.value is None else self.value.after(pushdown, label, text)

    def special(self, pushdown: ContextTable) -> Mapping[int, Context]:
        return {
            token_id: context_of(pushdown, self.automaton, configurations)
            for token_id, configurations in self.automaton.after_special(self.state).items()
        }


class ValueFrame(Frame):
    """A JSON value stands in a structural tag, which goes on after it."""

    __slots__ = ("_after", "_automaton")

    def __init__(self, pushdown: ContextTable, automaton: TagAutomaton, exit_: ValueExit) -> None:
        thing = automaton.foreign[exit_.index]
        assert isinstance(thing, JsonValue)
        self.id = pushdown.number(("tag value", automaton.key, exit_))
        self.layout = thing.layout
        self.records = False
        self._automaton = automaton
        self._after = exit_.stack

    def accepts(self, verdict: tuple[bool, ...]) -> bool:
        return True

    def child_done(
        self, pushdown: ContextTable, verdict: tuple[bool, ...], value: Hashable
    ) -> Context | None:
        return context_of(pushdown, self._automaton, self._automaton.returned(self._after))

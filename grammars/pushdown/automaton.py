"""The two levels of every grammar: lexemes below, contexts above.

A *lexeme* is a deterministic byte automaton whose ends carry labels: a JSON string, a number, the
keys of an object, a whole regular expression. A *context* says which lexeme comes next and, by the
label with which that lexeme ends, which context follows; a JSON document's contexts form a stack.
A position in a grammar is a pair (lexeme state, context). Both levels are built lazily by a
``Machine``, which numbers them, so that the mask walk is compiled code over arrays.

A constraint that is one lazy automaton, with no stack worth the name, implements ``Automaton``
and is wrapped by ``AutomatonLexeme``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from .pushdown_table import Machine
    from .state_table import Lexicon

DEAD = -1
"""In a row: no text of the language goes on with this byte."""

LAZY = -(1 << 30)
"""In a row: ``Lexeme.edge`` must be asked. The entry may turn out to be ``DEAD``."""

Row = NDArray[np.int32]
"""int32[256]: for each byte the next state, ``DEAD``, or ``ended(label)``."""


def ended(label: int) -> int:
    """The row entry of a byte that is the lexeme's last one: it ends with ``label``."""
    return -2 - label


class Automaton(Protocol):
    """A deterministic byte automaton, built as it is read.

    Every state that a row leads to must be completable: from it some text is accepted. ``key``
    identifies the language: equal keys share states and masks.
    """

    @property
    def key(self) -> Hashable: ...

    @property
    def start(self) -> int: ...

    def row(self, state: int) -> Row:
        """The next state for each byte, or ``DEAD``. Called once a state."""
        ...

    def is_accepting(self, state: int) -> bool: ...

    def shortest_completion(self, state: int) -> bytes:
        """A shortest text that is accepted from a state."""
        ...


class Lexeme(ABC):
    """A byte automaton with labelled ends, installed into a lexicon on first use.

    A lexeme ends in one of two ways. A byte may be its last (a closing quote): the row holds
    ``ended(label)``. Or it may end before a byte that it does not have (a number): ``fill``
    returns the label, and the byte is read by the context that follows. Where both are possible
    the lexeme goes on, so what follows such a lexeme must not begin with a byte that continues it.
    """

    key: Hashable
    """Equal keys mean equal automata with equal labels."""

    installed_in: object = None
    installed_at: int = -1
    """A token of the lexicon that last installed it, and the start state there: its to use."""

    has_edges: ClassVar[bool] = False
    """Whether ``fill`` leaves ``LAZY`` entries to ``edge``."""

    @abstractmethod
    def install(self, lexicon: Lexicon) -> int:
        """The lexicon's number of the start state."""

    def fill(self, lexicon: Lexicon, local: int, row: Row) -> int:
        """Write the row of the state that was reserved as ``lexicon.reserve(self, local)``.

        Returns the label with which the lexeme may end in this state, or -1.
        """
        raise NotImplementedError(f"{type(self).__name__} has no lazy states")

    def shortest_end(self, lexicon: Lexicon, state: int) -> LexemeEnd | None:
        """A shortest way to end from a state of the lexicon; None where it is to be searched."""
        return None

    def edge(self, lexicon: Lexicon, local: int, byte: int, row: Row) -> None:
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


class Context(ABC):
    """What may come next at a lexeme's border. Immutable; a machine interns it by ``key``."""

    __slots__ = ("id",)

    id: int
    """The machine's number, set when it is interned."""

    is_end: ClassVar[bool] = False
    """Whether the text may end here and nothing may follow."""

    kind: ClassVar[int] = 0
    """One of ``moves.PLAIN`` and the kinds after it."""

    may_close: ClassVar[bool] = False
    """Whether a closing bracket may come in place of an object's key or of a value."""

    captures: ClassVar[bool] = False
    """Whether ``after`` depends on the lexeme's text, not on its label alone."""

    offers_special: ClassVar[bool] = False
    """Whether ``special`` may offer anything."""

    @property
    @abstractmethod
    def key(self) -> Hashable:
        """Contexts of one machine with equal keys are the same; name others by their ``id``."""

    @abstractmethod
    def lexeme(self, machine: Machine) -> Lexeme | None:
        """What comes next. None if that depends on a text not known (see ``after``)."""

    def live(self) -> int | None:
        """The labels that may end the lexeme, as a bit set; None allows all.

        The walk drops lexeme states from which no live label can be reached, if the lexeme gave
        their reachable labels to the machine.
        """
        return None

    @abstractmethod
    def after(self, machine: Machine, label: int, text: bytes | None) -> After:
        """What comes after the lexeme ended with ``label``; None if it may not.

        An inner text that doesn't depend on what is around it (a JSON value) is best pushed: its
        contexts are then the same wherever it stands.

        ``text`` is the lexeme's text, given if ``captures`` is set and the text is known. While a
        mask is computed it is None: the answer then must allow what any text of this label would
        allow, up to a context whose ``lexeme`` is None; tokens that reach that far are decided
        one by one with their texts.
        """

    def likely(self) -> Iterable[int]:
        """Labels that are worth asking for before a text comes to them."""
        return ()

    def shortest_end(self, machine: Machine, state: int) -> LexemeEnd | None:
        """A shortest way to end the lexeme from one of its states, if this context knows it."""
        return None

    def completing_labels(self) -> list[int] | None:
        """The labels that a shortest completion may end the lexeme with; None: any of them."""
        return None

    def special(self, machine: Machine) -> Mapping[int, Context]:
        """Special tokens that may stand at this context's beginning, and what follows each."""
        return {}


class Push(NamedTuple):
    """An inner text comes next, from ``inner`` on. When that is popped with a label,
    ``outer.after`` says what comes after it; ``outer`` has no lexeme of its own.

    With a ``plan`` (see ``Machine.plan``) the inner text is an object or array that records
    describe, above ``outer`` if there is one.
    """

    inner: Context
    outer: Context | None
    plan: int = -1


class Pop(NamedTuple):
    """The inner text ends, with 0 or 1 as its label."""

    label: int


After = Context | Push | Pop | None


class End(Context):
    """The whole text has been read."""

    __slots__ = ()
    is_end = True

    @property
    def key(self) -> Hashable:
        return "end"

    def lexeme(self, machine: Machine) -> Lexeme | None:
        return NOTHING

    def after(self, machine: Machine, label: int, text: bytes | None) -> After:
        return None


class NothingLexeme(Lexeme):
    """No text at all: what comes after the end."""

    key = "nothing"

    def install(self, lexicon: Lexicon) -> int:
        return lexicon.reserve(self, 0)

    def fill(self, lexicon: Lexicon, local: int, row: Row) -> int:
        row[:] = DEAD
        return -1


NOTHING = NothingLexeme()


class AutomatonLexeme(Lexeme):
    """An ``Automaton`` as a lexeme that ends, with label 0, wherever the automaton accepts."""

    def __init__(self, automaton: Automaton) -> None:
        self.automaton = automaton
        self.key = ("automaton", automaton.key)

    def install(self, lexicon: Lexicon) -> int:
        return int(lexicon.reserve_all(self, np.array([self.automaton.start], np.int32))[0])

    def fill(self, lexicon: Lexicon, local: int, row: Row) -> int:
        targets = self.automaton.row(local)
        row[:] = DEAD
        goes_on = targets >= 0
        row[goes_on] = lexicon.reserve_all(self, targets[goes_on])
        return 0 if self.automaton.is_accepting(local) else -1

    def shortest_end(self, lexicon: Lexicon, state: int) -> LexemeEnd:
        locals_ = lexicon.tables["reserved", self.key]
        local = int(np.flatnonzero(locals_ == state)[0])
        return LexemeEnd(self.automaton.shortest_completion(local), 0, is_open=True)


class Whole(Context):
    """One lexeme, then the end."""

    __slots__ = ("_lexeme",)

    def __init__(self, lexeme: Lexeme) -> None:
        self._lexeme = lexeme

    @property
    def key(self) -> Hashable:
        return ("whole", self._lexeme.key)

    def lexeme(self, machine: Machine) -> Lexeme | None:
        return self._lexeme

    def shortest_end(self, machine: Machine, state: int) -> LexemeEnd | None:
        return self._lexeme.shortest_end(machine.lexicon, state)

    def after(self, machine: Machine, label: int, text: bytes | None) -> After:
        return machine.intern(End())

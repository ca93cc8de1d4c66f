"""The interface of frames: the open objects and arrays around a JSON value (``contexts.py``).

A frame's ``id`` is the pushdown table's number for its content; frames with equal content have
equal ids.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import ClassVar

from ramet.grammars.json_schema.schema.layout import Layout
from ramet.grammars.pushdown.automaton import End
from ramet.grammars.pushdown.context_table import After, ContextTable
from ramet.grammars.pushdown.state_table import Lexeme

from .children import Child

UNKNOWN = ("unknown",)
"""Stands for a value, or a name, whose text isn't known while a mask is computed."""


class Frame(ABC):
    """The frame around a value."""

    __slots__ = ("id", "layout", "records")

    id: int
    layout: Layout
    """The white space inside the frame."""

    records: bool
    """Whether the value itself is wanted, not only the verdicts on it."""

    def value_lexeme(
        self,
        pushdown: ContextTable,
        plan: object,
        prefixes: tuple[bytes, ...],
        close_prefixes: tuple[bytes, ...] | None,
    ) -> Lexeme | None:
        """A lexeme of the frame's own for a value in it; None: that of the value's plan."""
        return None

    @abstractmethod
    def accepts(self, verdict: tuple[bool, ...]) -> bool:
        """Whether the whole text can still be completed after a value with these verdicts."""

    @abstractmethod
    def child_done(
        self, pushdown: ContextTable, verdict: tuple[bool, ...], value: Hashable
    ) -> After:
        """What follows the value. ``value`` is in canonical form if ``records`` is set."""


class OpenFrame(Frame):
    """An open object or array, between two properties or items."""

    __slots__ = ()
    bracket: ClassVar[int]
    """The byte that closes it."""

    child: Child | None
    """What is followed in the value that is being read; None between two."""

    @abstractmethod
    def choices(self) -> tuple[bool, bool]:
        """Whether there may be another property or item, and whether it may end."""

    @abstractmethod
    def go_on(self, pushdown: ContextTable) -> After:
        """What follows a comma."""

    @abstractmethod
    def close(self, pushdown: ContextTable) -> After:
        """What follows the closing bracket."""


class Top(Frame):
    """Nothing around the value: the text ends with it."""

    __slots__ = ()

    def __init__(self, layout: Layout) -> None:
        self.id = -1
        self.layout = layout
        self.records = False

    def accepts(self, verdict: tuple[bool, ...]) -> bool:
        return True

    def child_done(
        self, pushdown: ContextTable, verdict: tuple[bool, ...], value: Hashable
    ) -> After:
        return pushdown.intern(End())

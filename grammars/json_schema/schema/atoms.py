"""Atoms: JSON Schema's elementary constraints, by the type of value that each applies to."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from decimal import Decimal

from .formula import Formula

TYPES = ("object", "array", "string", "number", "null", "true", "false")
"""What a JSON text can be: JSON's types, with ``boolean`` as its two values."""


@dataclass(frozen=True, slots=True)
class Const:
    """A node's atom: the value equals this one. See ``values.canonical`` for the form."""

    value: Hashable


# -- numbers


@dataclass(frozen=True, slots=True)
class Integer:
    """The number is mathematically an integer."""


@dataclass(frozen=True, slots=True)
class AtLeast:
    """The number is at least ``bound``, or above it."""

    bound: Decimal
    exclusive: bool


@dataclass(frozen=True, slots=True)
class AtMost:
    """The number is at most ``bound``, or below it."""

    bound: Decimal
    exclusive: bool


@dataclass(frozen=True, slots=True)
class MultipleOf:
    """The number is an integer times ``divisor``."""

    divisor: Decimal


@dataclass(frozen=True, slots=True)
class NumberIs:
    """The number is one of ``values``."""

    values: frozenset[Decimal]


# -- strings


@dataclass(frozen=True, slots=True)
class TextLength:
    """The string has ``low`` to ``high`` code points."""

    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class Pattern:
    """The string has a match of an ECMA-262 regular expression.

    Where it is ``unbounded``, a long repetition that counts characters has no bounds; those are in
    a ``TextLength``.
    """

    pattern: str
    unbounded: bool = False


@dataclass(frozen=True, slots=True)
class Format:
    """The string is of a known format."""

    name: str


@dataclass(frozen=True, slots=True)
class TextIs:
    """The string is one of ``values``."""

    values: frozenset[str]


# -- objects


@dataclass(frozen=True, slots=True)
class Has:
    """The object has this property."""

    name: str


@dataclass(frozen=True, slots=True)
class Size:
    """The object has ``low`` to ``high`` properties."""

    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class _Remembered:
    """An atom with much content, whose hash is cached."""

    _hash: int = field(init=False, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Properties(_Remembered):
    """Every property's value satisfies its node.

    A property's node is the conjunction of what ``names`` has for it and of all ``patterns``
    whose language (a typed formula over strings) its name is in; ``rest``, if there is none.
    """

    names: tuple[tuple[str, Formula], ...]
    patterns: tuple[tuple[Formula, Formula], ...]
    rest: Formula

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.names, self.patterns, self.rest)))

    def __hash__(self) -> int:
        return self._hash


# -- arrays


@dataclass(frozen=True, slots=True)
class Items(_Remembered):
    """Item i satisfies ``prefix[i]``; each item past the prefix satisfies ``rest``."""

    prefix: tuple[Formula, ...]
    rest: Formula

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.prefix, self.rest)))

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True, slots=True)
class Length:
    """The array has ``low`` to ``high`` items."""

    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class Contains:
    """Of the items, ``low`` to ``high`` satisfy ``node``."""

    node: Formula
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class Unique:
    """No two items are equal."""

"""A context-free grammar, free of any dialect: named rules over regular terminals."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ramet.grammars.regular import Dfa


@dataclass(frozen=True)
class Terminal:
    """One member of a regular language."""

    dfa: Dfa


@dataclass(frozen=True)
class Call:
    """What the rule ``name`` derives. ``offset`` is its place in the grammar's text."""

    name: str
    offset: int = 0


@dataclass(frozen=True)
class Foreign:
    """A part that isn't a rule, such as a JSON value: the ``index``-th of a list kept elsewhere.

    It derives some text, and consumes at least one byte or token.
    """

    index: int


@dataclass(frozen=True)
class Sequence:
    """Parts one after the other."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True)
class Alternatives:
    """One of the options."""

    options: tuple[Expression, ...]


@dataclass(frozen=True)
class Repeat:
    """``part``, ``minimum`` to ``maximum`` times (None: any number)."""

    part: Expression
    minimum: int
    maximum: int | None


Leaf = Terminal | Call | Foreign
Expression = Leaf | Sequence | Alternatives | Repeat


@dataclass(frozen=True)
class Rules:
    """A grammar: its rules by name, and the one that it starts with."""

    rules: dict[str, Expression]
    start: str


def sequence(parts: Iterable[Expression]) -> Expression:
    """The sequence of some parts; a single part is returned as it is."""
    found = tuple(parts)
    return found[0] if len(found) == 1 else Sequence(found)


def alternatives(options: Iterable[Expression]) -> Expression:
    """One of the options; one option is itself."""
    found = tuple(options)
    return found[0] if len(found) == 1 else Alternatives(found)


def calls(expression: Expression) -> list[Call]:
    """Every call in an expression."""
    found: list[Call] = []
    stack: list[Expression] = [expression]
    while stack:
        match stack.pop():
            case Call() as call:
                found.append(call)
            case Sequence(parts) | Alternatives(parts):
                stack += parts
            case Repeat(part, _, _):
                stack.append(part)
            case _:
                pass
    return found


def renamed(expression: Expression, prefix: str) -> Expression:
    """The same with ``prefix`` before each called rule's name."""

    def rename(leaf: Leaf) -> Expression:
        return Call(prefix + leaf.name, leaf.offset) if isinstance(leaf, Call) else leaf

    return map_leaves(expression, rename)


def map_leaves(expression: Expression, change: Callable[[Leaf], Expression]) -> Expression:
    """The same with each leaf replaced by what ``change`` returns for it."""
    match expression:
        case Sequence(parts):
            return Sequence(tuple(map_leaves(part, change) for part in parts))
        case Alternatives(options):
            return Alternatives(tuple(map_leaves(option, change) for option in options))
        case Repeat(part, minimum, maximum):
            return Repeat(map_leaves(part, change), minimum, maximum)
        case _:
            return change(expression)

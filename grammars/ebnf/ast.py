"""A context-free grammar, free of any dialect: named rules over regular terminals."""

from __future__ import annotations

from collections.abc import Iterable
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
    """Something that another pushdown table reads: the ``index``-th thing of a list kept elsewhere.

    It takes at least one byte or token, and some text is one.
    """

    index: int


@dataclass(frozen=True)
class Sequence:
    """Parts in a row."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True)
class Alternatives:
    """One of the options."""

    options: tuple[Expression, ...]


@dataclass(frozen=True)
class Repeat:
    """``part`` in a row; ``maximum`` None is without bound."""

    part: Expression
    minimum: int
    maximum: int | None


Expression = Terminal | Call | Foreign | Sequence | Alternatives | Repeat


@dataclass(frozen=True)
class Rules:
    """A grammar: its rules by name, and the one that it starts with."""

    rules: dict[str, Expression]
    start: str


def sequence(parts: Iterable[Expression]) -> Expression:
    """Parts in a row; one part is itself."""
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
    match expression:
        case Call(name, offset):
            return Call(prefix + name, offset)
        case Sequence(parts):
            return Sequence(tuple(renamed(part, prefix) for part in parts))
        case Alternatives(options):
            return Alternatives(tuple(renamed(option, prefix) for option in options))
        case Repeat(part, minimum, maximum):
            return Repeat(renamed(part, prefix), minimum, maximum)
        case _:
            return expression

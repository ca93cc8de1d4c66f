"""The syntax tree of a regex, over code points, free of any dialect."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ramet.grammars.regular.automata.utf8 import ALL, Ranges


@dataclass(frozen=True)
class Characters:
    """One code point of a set."""

    ranges: Ranges


@dataclass(frozen=True)
class Sequence:
    """Parts in a row; no parts match the empty text."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Alternatives:
    """One of the options."""

    options: tuple[Node, ...]


@dataclass(frozen=True)
class Repeat:
    """``part`` in a row; ``maximum`` None is without bound."""

    part: Node
    minimum: int
    maximum: int | None


@dataclass(frozen=True)
class Before:
    """Matches nothing, where the whole text so far is (or, negated, is not) one of ``part``."""

    part: Node
    negated: bool = False


@dataclass(frozen=True)
class After:
    """Matches nothing, where the whole rest of the text is (or is not) one of ``part``."""

    part: Node
    negated: bool = False


Node = Characters | Sequence | Alternatives | Repeat | Before | After

NOTHING = Sequence(())
ANY_TEXT = Repeat(Characters(ALL), 0, None)
AT_START = Before(NOTHING)
AT_END = After(NOTHING)


def sequence(parts: Iterable[Node]) -> Node:
    """Parts in a row, flat."""
    flat: list[Node] = []
    for part in parts:
        flat += part.parts if isinstance(part, Sequence) else (part,)
    return flat[0] if len(flat) == 1 else Sequence(tuple(flat))


def alternatives(options: Iterable[Node]) -> Node:
    """One of the options, flat; no options match nothing at all."""
    flat: list[Node] = []
    for option in options:
        flat += option.options if isinstance(option, Alternatives) else (option,)
    return flat[0] if len(flat) == 1 else Alternatives(tuple(flat))


def children(node: Node) -> tuple[Node, ...]:
    """The parts of a node."""
    match node:
        case Characters():
            return ()
        case Sequence(parts) | Alternatives(parts):
            return parts
        case _:
            return (node.part,)


def has_assertions(node: Node) -> bool:
    """Whether any part looks at the text before or after it."""
    stack = [node]
    while stack:
        node = stack.pop()
        if isinstance(node, Before | After):
            return True
        stack += children(node)
    return False

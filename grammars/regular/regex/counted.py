"""Anchored regexes in which one long repetition counts characters: a language and a length."""

from __future__ import annotations

from .syntax import (
    AT_END,
    AT_START,
    Alternatives,
    Characters,
    Node,
    Repeat,
    Sequence,
    sequence,
)

_LONG = 100
"""A repetition with a bound over this is taken apart."""


def without_bounds(node: Node) -> tuple[Node, int, int | None] | None:
    """A regex whose matches of ``low`` to ``high`` code points are those of ``node``.

    That is the same with one repetition unbounded, where all other parts and what is repeated have
    fixed lengths: then the length of a text tells how often. None if ``node`` is not like that.
    """
    if not isinstance(node, Sequence) or len(node.parts) < 3:
        return None
    first, *parts, last = node.parts
    if first != AT_START or last != AT_END:
        return None
    long = [i for i, part in enumerate(parts) if isinstance(part, Repeat) and _is_long(part)]
    if len(long) != 1:
        return None
    repeat = parts[long[0]]
    assert isinstance(repeat, Repeat)
    length = fixed_length(repeat.part)
    others = fixed_length(sequence(parts[: long[0]] + parts[long[0] + 1 :]))
    if not length or others is None:
        return None
    parts[long[0]] = Repeat(repeat.part, 0, None)
    high = None if repeat.maximum is None else others + length * repeat.maximum
    return sequence((first, *parts, last)), others + length * repeat.minimum, high


def _is_long(node: Repeat) -> bool:
    return max(node.minimum, node.maximum or 0) > _LONG


def fixed_length(node: Node) -> int | None:
    """The code points of every match; None if matches differ or look around."""
    match node:
        case Characters():
            return 1
        case Sequence(parts):
            lengths = [fixed_length(part) for part in parts]
            return None if None in lengths else sum(n for n in lengths if n is not None)
        case Alternatives(options):
            found = {fixed_length(option) for option in options}
            return found.pop() if len(found) == 1 else None
        case Repeat(part, minimum, maximum):
            length = fixed_length(part)
            return minimum * length if minimum == maximum and length is not None else None
        case _:
            return None

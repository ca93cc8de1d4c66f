"""Splits a regex into its top-level alternatives, each a pattern of its own."""

from __future__ import annotations

import itertools
import re

from ramet.grammars.constraints import Regex

_GLOBAL_FLAGS = re.compile(r"\(\?[aimsux]+\)")
_GROUP = re.compile(r"\((?:\?:|\?P?<[A-Za-z_]\w*>)?(?!\?)")


def regex_options(regex: Regex) -> list[Regex]:
    """The options of a top-level alternation, also of one in a group around the whole pattern.

    Flags in front of the pattern are put in front of each. Without an alternation there is one
    option. The split goes by the text alone, so callers check that the options together match
    what the pattern matches.
    """
    pattern, dialect = regex.pattern, regex.dialect
    flags = _GLOBAL_FLAGS.match(pattern) if dialect == "python" else None
    prefix = flags.group() if flags else ""
    parts = _split(pattern[len(prefix) :], dialect)
    while len(parts) == 1 and (inner := _unwrapped(parts[0], dialect)) is not None:
        parts = _split(inner, dialect)
    return [Regex(prefix + part, dialect, regex.classes) for part in parts]


def _split(pattern: str, dialect: str) -> list[str]:
    """The parts between the ``|`` that are in no group."""
    bars = [at for at, depth, c in _syntax(pattern, dialect) if c == "|" and depth == 0]
    borders = [-1, *bars, len(pattern)]
    return [pattern[a + 1 : b] for a, b in itertools.pairwise(borders)]


def _unwrapped(pattern: str, dialect: str) -> str | None:
    """What is in the group that is the whole pattern; None if it is no such group."""
    opening = _GROUP.match(pattern)
    if opening is None:
        return None
    closed = next((at for at, depth, c in _syntax(pattern, dialect) if c == ")" and not depth), -1)
    return pattern[opening.end() : -1] if closed == len(pattern) - 1 else None


def _syntax(pattern: str, dialect: str) -> list[tuple[int, int, str]]:
    """Each parenthesis and bar: its place, the depth outside of it, and the character."""
    found: list[tuple[int, int, str]] = []
    depth = 0
    at = 0
    while at < len(pattern):
        c = pattern[at]
        if c == "\\":
            at += 1
        elif c == "[":
            at = _class_end(pattern, at, dialect)
        elif c == "(":
            found.append((at, depth, c))
            depth += 1
        elif c == ")":
            depth -= 1
            found.append((at, depth, c))
        elif c == "|":
            found.append((at, depth, c))
        at += 1
    return found


def _class_end(pattern: str, at: int, dialect: str) -> int:
    """The place of the ``]`` that closes the class that opens at ``at``."""
    at += 1
    if pattern[at : at + 1] == "^":
        at += 1
    if dialect == "python" and pattern[at : at + 1] == "]":
        at += 1  # the first one is a member
    while at < len(pattern) and pattern[at] != "]":
        at += 2 if pattern[at] == "\\" else 1
    return at

"""Character classes: what ``\\d``, ``\\w``, ``\\s``, ``.`` and ``\\p{...}`` mean, and case.

Python's classes are read off Python's own ``re``; Unicode's properties off the ``regex`` module
(which the tokenizer library brings along), so both follow the tables that users compare with.
"""

from __future__ import annotations

import re
import sys
from functools import cache

import numpy as np

from ramet.grammars.regular.automata.utf8 import Ranges, negated, normalised

DIGITS: Ranges = ((48, 57),)
ASCII_WORD: Ranges = normalised([(48, 57), (65, 90), (95, 95), (97, 122)])
ASCII_SPACE: Ranges = ((9, 13), (32, 32))
NEWLINE: Ranges = ((10, 10),)
LINE_TERMINATORS: Ranges = ((10, 10), (13, 13), (0x2028, 0x2029))
_ECMA_SPACES = [
    (0x0009, 0x000D),
    (0x0020, 0x0020),
    (0x00A0, 0x00A0),
    (0x1680, 0x1680),
    (0x2000, 0x200A),
    (0x2028, 0x2029),
    (0x202F, 0x202F),
    (0x205F, 0x205F),
    (0x3000, 0x3000),
    (0xFEFF, 0xFEFF),
]
ECMA_SPACE: Ranges = normalised(_ECMA_SPACES)
"""WhiteSpace and LineTerminator of ECMA-262, section 12.2 and 12.3."""

_PROPERTY_NAME = re.compile(r"[A-Za-z0-9_]+(=[A-Za-z0-9_]+)?")
_ECMA_ONLY: dict[str, Ranges] = {"Any": ((0, sys.maxunicode),), "ASCII": ((0, 127),)}


@cache
def _all_characters() -> str:
    """Every code point in order, surrogates too, so that an index is a code point."""
    codes = np.arange(sys.maxunicode + 1, dtype="<u4")
    return codes.tobytes().decode("utf-32-le", "surrogatepass")


def _spans(matches: object) -> Ranges:
    return normalised((m.start(), m.end() - 1) for m in matches)  # type: ignore[attr-defined]


@cache
def python_class(letter: str) -> Ranges:
    """The set of ``\\d``, ``\\w`` or ``\\s`` in Python's ``re`` for ``str``."""
    return _spans(re.compile(rf"\{letter}+").finditer(_all_characters()))


@cache
def unicode_property(name: str) -> Ranges | None:
    """The set of ``\\p{name}``, where name is ``Lu``, ``Script=Greek`` or ``Alphabetic``.

    Returns:
        The set, or None if there is no such property.
    """
    if name in _ECMA_ONLY:
        return _ECMA_ONLY[name]
    if not _PROPERTY_NAME.fullmatch(name):
        return None
    import regex  # type: ignore[import-untyped] # Slow to import, and seldom needed.

    try:
        pattern = regex.compile(rf"\p{{{name}}}+", regex.V1)
    except regex.error:
        return None
    return _spans(pattern.finditer(_all_characters()))


@cache
def _case_partners(*, ecma: bool) -> dict[int, tuple[int, ...]]:
    """For each code point that ignoring case equates with others: all of them."""
    groups: dict[str, set[int]] = {}
    for code_point in (*range(0xD800), *range(0xE000, 0x1F000)):
        c = chr(code_point)
        lower, upper = c.lower(), c.upper()
        if lower == upper == c:
            continue
        if ecma:  # Simple case folding, which maps one code point to one.
            folded = c.casefold()
            keys = [folded if len(folded) == 1 else lower if len(lower) == 1 else c]
        else:  # Python compares lower cases, and equates some letters whose upper case is one.
            keys = ["lower " + ("i" if c == "İ" else lower), "upper " + upper]
        for key in keys:
            groups.setdefault(key, set()).add(code_point)
            if ecma:
                groups[key].add(ord(key))
    partners: dict[int, set[int]] = {}
    for group in groups.values():
        joined = set(group).union(*(partners.get(c, ()) for c in group))
        for member in joined:
            partners[member] = joined
    return {c: tuple(sorted(group)) for c, group in partners.items() if len(group) > 1}


def ignoring_case(ranges: Ranges, *, ecma: bool, ascii_only: bool = False) -> Ranges:
    """The set and everything that differs from a member in case alone."""
    extra: list[tuple[int, int]] = []
    if ascii_only:
        for low, high in ranges:
            for shift, first, last in ((32, 65, 90), (-32, 97, 122)):
                a, b = max(low, first), min(high, last)
                if a <= b:
                    extra.append((a + shift, b + shift))
        return normalised((*ranges, *extra))
    partners = _case_partners(ecma=ecma)
    for low, high in ranges:
        candidates = partners if high - low > 4096 else range(low, high + 1)
        for c in candidates:
            if not (low <= c <= high and c in partners):
                continue
            extra += [(p, p) for p in partners[c]]
    return normalised((*ranges, *extra))


def without(ranges: Ranges, excluded: Ranges) -> Ranges:
    """The members of ``ranges`` that are not in ``excluded``."""
    return negated(normalised((*negated(ranges), *excluded)))

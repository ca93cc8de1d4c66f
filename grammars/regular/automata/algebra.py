"""Constructs languages: texts, character sets, concatenation, repetition, union, intersection."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np

from ramet.grammars.errors import ConstraintError
from ramet.grammars.limits import DEFAULT_LIMITS, RegularLimits, too_complex
from ramet.grammars.regular.loops import tries

from .dfa import EMPTY, EPSILON, Dfa, any_text
from .nfa import NfaBuilder
from .utf8 import Ranges


def concat(*parts: Dfa, limits: RegularLimits = DEFAULT_LIMITS) -> Dfa:
    """The concatenation of ``parts``."""
    builder = NfaBuilder(limits)
    at = builder.start = builder.new_state()
    for part in parts:
        at = builder.dfa(part, at)
    return builder.build(at)


def repeat(
    part: Dfa,
    minimum: int = 0,
    maximum: int | None = None,
    limits: RegularLimits = DEFAULT_LIMITS,
) -> Dfa:
    """``minimum`` to ``maximum`` members in a row (None: any number)."""
    builder = NfaBuilder(limits)
    builder.start = builder.new_state()
    end = builder.repeat(lambda b, s: b.dfa(part, s), builder.start, minimum, maximum)
    return builder.build(end)


def star(part: Dfa, limits: RegularLimits = DEFAULT_LIMITS) -> Dfa:
    """Any number of members in a row, none included."""
    return repeat(part, 0, None, limits)


def optional(part: Dfa, limits: RegularLimits = DEFAULT_LIMITS) -> Dfa:
    """A member or nothing."""
    return part.union(EPSILON, limits)


@lru_cache(maxsize=1024)
def characters(ranges: Ranges) -> Dfa:
    """Every text of one code point in ``ranges`` (sorted, disjoint, inclusive)."""
    builder = NfaBuilder()
    builder.start = builder.new_state()
    return builder.build(builder.characters(ranges, builder.start))


@lru_cache(maxsize=1024)
def literal(text: bytes | str) -> Dfa:
    """The language of one text."""
    return literals([text])


def literals(texts: Iterable[bytes | str], limits: RegularLimits = DEFAULT_LIMITS) -> Dfa:
    """The language of the given texts, as the minimal form of their trie."""
    try:
        encoded = sorted({t.encode() if isinstance(t, str) else t for t in texts})
    except UnicodeEncodeError:
        raise ConstraintError("", "text", "a lone surrogate is not text") from None
    if not encoded:
        return EMPTY
    if sum(map(len, encoded)) > limits.max_table:
        raise too_complex("a list of literal texts", limits)
    used = np.unique(np.frombuffer(b"".join(encoded), np.uint8))
    class_of = np.zeros(256, np.uint8)
    class_of[used] = np.arange(len(used)) + (1 if len(used) < 256 else 0)
    num_classes = int(class_of.max()) + 1
    status, table, accepting = tries.trie(
        np.frombuffer(b"".join(encoded), np.uint8),
        np.cumsum([0, *map(len, encoded)]).astype(np.int64),
        class_of, num_classes, limits.states_for(num_classes),
    )  # fmt: skip
    if status:
        raise too_complex("a list of literal texts", limits)
    return Dfa.from_table(class_of, table, accepting)


def union_all(dfas: Iterable[Dfa], limits: RegularLimits = DEFAULT_LIMITS) -> Dfa:
    """The members of any of ``dfas``."""
    parts = [d for d in dfas if not d.is_empty]
    if len(parts) <= 2:
        return EMPTY if not parts else parts[0] if len(parts) == 1 else parts[0].union(parts[1])
    builder = NfaBuilder(limits)
    builder.start = builder.new_state()
    end = builder.new_state()
    for part in parts:
        builder.epsilon_edge(builder.dfa(part, builder.start), end)
    return builder.build(end)


def intersect_all(dfas: Iterable[Dfa], limits: RegularLimits = DEFAULT_LIMITS) -> Dfa:
    """The texts that are members of all of ``dfas``; every text if there are none."""
    parts = sorted(dfas, key=lambda d: d.num_states)
    if not parts:
        return any_text()
    result = parts[0]
    for part in parts[1:]:
        result = result.intersect(part, limits)
    return result

"""The exponents of number texts, between two values."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ramet.grammars.regular.automata.dfa import EMPTY, Dfa
from ramet.grammars.regular.automata.nfa import NfaBuilder

_MINUS, _PLUS = b"-+"


@lru_cache(maxsize=2048)
def exponents_between(least: int, most: int) -> Dfa:
    """Exponents of one to three digits, ``e`` included, from ``least`` to ``most``."""
    builder = NfaBuilder()
    builder.start = builder.new_state()
    marked = builder.new_state()
    builder.edges += [(builder.start, ord(e), ord(e), marked) for e in "eE"]
    end = builder.new_state()
    if most >= 0:
        signed = builder.byte_range(_PLUS, _PLUS, marked)
        positive = _naturals_between(max(least, 0), most)
        for source in (marked, signed):
            builder.epsilon_edge(builder.dfa(positive, source), end)
    if least <= 0:
        signed = builder.byte_range(_MINUS, _MINUS, marked)
        negative = _naturals_between(max(-most, 0), -least)
        builder.epsilon_edge(builder.dfa(negative, signed), end)
    return builder.build(end)


def _naturals_between(least: int, most: int) -> Dfa:
    """One to three digits, zeros in front allowed, whose value is from ``least`` to ``most``."""
    if least > min(most, 999):
        return EMPTY
    table = np.full((1 + 10 + 100 + 1000, 10), -1, np.int32)
    accepting = np.zeros(len(table), np.bool_)
    for length, base in ((0, 0), (1, 1), (2, 11), (3, 111)):
        values = np.arange(10**length)
        accepting[base + values] = (values >= least) & (values <= most) & (length > 0)
        if length < 3:
            table[base + values] = base + 10**length + 10 * values[:, None] + np.arange(10)[None, :]
    class_of = np.zeros(256, np.uint8)
    class_of[48:58] = np.arange(10) + 1
    columns = np.concatenate([np.full((len(table), 1), -1, np.int32), table], axis=1)
    return Dfa.from_table(class_of, columns, accepting)

"""Internationalised host names (RFC 5890 to 5893): the subset that an automaton can recognise.

A label beyond ASCII has characters that IDNA always allows, that are written from left to right and
combine with no other, and so few of them that its Punycode stays within 63 octets.
"""

from __future__ import annotations

import itertools
from functools import cache

from ramet.grammars.regular.automata.algebra import concat, literal, union_all
from ramet.grammars.regular.automata.dfa import Dfa
from ramet.grammars.regular.regex import regex_dfa

_MAX_LEN, _MAX_FAR = 22, 6
"""Characters of a label beyond ASCII, and how many are, of at most 7 digits of Punycode each."""

_MAX_LABELS, _MAX_FAR_LABELS = 3, 2
"""Two labels of 63 octets and one of 32 are less than the 253 of a name."""

_BLOCKS = "ß-öø-ÿ", "α-ω", "а-яё", "ぁ-ゔ", "ァ-ヺ", "一-龥", "가-힣"
"""Small letters of Latin, Greek and Cyrillic; kana, Han and Hangul: all stable and allowed."""


@cache
def idn_hostname() -> Dfa:
    """Names of a few labels, of which one or two may be beyond ASCII."""
    near = regex_dfa("[0-9A-Za-z]([0-9A-Za-z-]{0,30}[0-9A-Za-z])?").difference(regex_dfa("..--.*"))
    far = _far_label()
    names = []
    for count in range(1, _MAX_LABELS + 1):
        for labels in itertools.product((near, far), repeat=count):
            if sum(label is far for label in labels) <= _MAX_FAR_LABELS:
                parts = [part for label in labels for part in (literal("."), label)]
                names.append(concat(*parts[1:]))
    return union_all(names)


def _far_label() -> Dfa:
    far = f"[{''.join(_BLOCKS)}]"
    labels = regex_dfa(f"[0-9a-z]*({far}[0-9a-z]*){{1,{_MAX_FAR}}}")
    return labels.intersect(regex_dfa(f".{{1,{_MAX_LEN}}}"))

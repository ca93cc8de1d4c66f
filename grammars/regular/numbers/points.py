"""The spellings of given numbers, few or thousands, as one automaton.

Each number has few texts up to where only zeros and an exponent may follow: those texts are kept
as a tree whose equal branches are one, and what may follow is put in place of their last bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from decimal import Decimal

from ramet.grammars.limits import DEFAULT_LIMITS
from ramet.grammars.regular.automata.algebra import literals
from ramet.grammars.regular.automata.dfa import EMPTY, Dfa
from ramet.grammars.regular.automata.nfa import NfaBuilder

from .exponents import exponents_between
from .intervals import (
    LARGEST,
    MAX_DECIMALS,
    SMALLEST,
    check_digits,
)

_DIGIT, _DOT = 0x30, 0x2E
_MARK = 0x80
"""The first of the bytes that stand for a number of what follows, seven bits in each of two."""
_MAX_FOLLOWING = 1 << 14
_LIMITS = replace(DEFAULT_LIMITS, max_states=DEFAULT_LIMITS.max_table // 16)
"""A list of numbers is bounded by its size, not by how its automaton was made."""

_WHOLE, _DECIMALS = -1, -2
Following = tuple[int, int]
"""What may follow a text: the decimals it has, or one of the two above, and its exponent."""


def points_dfa(values: Iterable[Decimal], *, exponents: bool) -> Dfa:
    """The texts in the universe of ``numbers.py`` whose values are any of ``values``."""
    numbers: dict[Following, int] = {}
    texts: set[bytes] = set()

    def add(text: str, following: Following) -> None:
        number = numbers.setdefault(following, len(numbers))
        texts.add(text.encode() + bytes((_MARK + (number >> 7), _MARK + (number & 127))))

    for value in values:
        check_digits(value)
        for sign in ("", "-") if value == 0 else ("-" if value < 0 else "",):
            _add_spellings(value.copy_abs(), sign, exponents, add)
    assert len(numbers) < _MAX_FOLLOWING
    if not texts:
        return EMPTY
    tree = literals(texts, _LIMITS)
    builder = NfaBuilder(_LIMITS)
    builder.num_states = tree.num_states
    end = builder.new_state()
    tails = _Tails(builder, end)
    firsts: dict[int, list[tuple[int, int, int]]] = {}
    seconds: dict[int, list[tuple[int, int]]] = {}
    is_mark = tree.edges[:, 1] >= _MARK
    builder.edge_blocks.append(tree.edges[~is_mark])
    for source, first, last, target in tree.edges[is_mark].tolist():
        if tree.accepting[target]:
            seconds.setdefault(source, []).append((first - _MARK, last - _MARK))
        else:
            firsts.setdefault(target, []).append((source, first - _MARK, last - _MARK))
    followings = list(numbers)
    for middle, ranges in seconds.items():
        for source, first, last in firsts[middle]:
            for high in range(first, last + 1):
                for start, stop in ranges:
                    for low in range(start, stop + 1):
                        builder.epsilon_edge(source, tails.state(followings[high << 7 | low]))
    return builder.build(end)


def _add_spellings(
    value: Decimal, sign: str, exponents: bool, add: Callable[[str, Following], None]
) -> None:
    whole, _, decimals = f"{value:f}".partition(".")
    whole, decimals = whole.lstrip("0") or "0", decimals.rstrip("0")
    if decimals:
        add(f"{sign}{whole}.{decimals}", (_DECIMALS, 0))
    else:
        add(f"{sign}{whole}", (_WHOLE, 0))
    if not exponents:
        return
    if value == 0:
        add(f"{sign}0", (_WHOLE, 1))
    elif SMALLEST <= value <= LARGEST:
        digits = "".join(map(str, value.as_tuple().digits)).rstrip("0")
        if len(digits) - 1 <= MAX_DECIMALS:
            point = "." if len(digits) > 1 else ""
            following = (len(digits) - 1, value.adjusted())
            add(f"{sign}{digits[0]}{point}{digits[1:]}", following)


class _Tails:
    """The states from which what may follow is read."""

    def __init__(self, builder: NfaBuilder, end: int) -> None:
        self._builder = builder
        self._end = end
        self._states: dict[Following, int] = {}
        self._exponents: dict[tuple[int, int], int] = {}

    def state(self, following: Following) -> int:
        """The state after a text."""
        known = self._states.get(following)
        if known is None:
            known = self._states[following] = self._builder.new_state()
            kind, exponent = following
            if kind == _DECIMALS:
                self._zeros(known)
                self._builder.epsilon_edge(known, self._end)
            elif kind == _WHOLE:
                at = self._point_and_zero(known)
                self._zeros(at)
                ended = self._exponent(-999, 999) if exponent else self._end
                self._builder.epsilon_edge(known, ended)
                self._builder.epsilon_edge(at, ended)
            else:
                self._mantissa(known, kind, exponent)
        return known

    def _mantissa(self, state: int, num_decimals: int, exponent: int) -> None:
        ended = self._exponent(exponent, exponent)
        self._builder.epsilon_edge(state, ended)
        if num_decimals >= MAX_DECIMALS:
            return
        after = self.state((num_decimals + 1, exponent))
        point = self._builder.byte_range(_DOT, _DOT, state) if num_decimals == 0 else state
        self._builder.edges.append((point, _DIGIT, _DIGIT, after))

    def _zeros(self, state: int) -> None:
        self._builder.edges.append((state, _DIGIT, _DIGIT, state))

    def _point_and_zero(self, state: int) -> int:
        point = self._builder.byte_range(_DOT, _DOT, state)
        return self._builder.byte_range(_DIGIT, _DIGIT, point)

    def _exponent(self, least: int, most: int) -> int:
        known = self._exponents.get((least, most))
        if known is None:
            known = self._exponents[least, most] = self._builder.new_state()
            tail = self._builder.dfa(exponents_between(least, most), known)
            self._builder.epsilon_edge(tail, self._end)
        return known

"""Promised: ``Dfa`` is canonical, its operations are those on sets, and no state is a dead end."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.grammars.errors import ConstraintError, GrammarTooComplexError
from ramet.grammars.regular import (
    EMPTY,
    EPSILON,
    Dfa,
    RegularLimits,
    any_text,
    characters,
    concat,
    intersect_all,
    literal,
    literals,
    optional,
    regex_dfa,
    repeat,
    star,
    union_all,
)

bounded = settings(max_examples=60, deadline=None)

WORDS = st.text(alphabet="abé", max_size=3)
FINITE = st.frozensets(WORDS, max_size=6)
ALL_SHORT = ["".join(w) for n in range(5) for w in itertools.product("abé", repeat=n)]


def language(dfa: Dfa) -> frozenset[str]:
    return frozenset(w for w in ALL_SHORT if dfa.accepts(w.encode()))


def short(words: frozenset[str]) -> frozenset[str]:
    return frozenset(w for w in words if len(w) <= 4)


@bounded
@given(FINITE, FINITE)
def test_boolean_operations_are_those_on_sets(x: frozenset[str], y: frozenset[str]) -> None:
    a, b = literals(x), literals(y)
    assert language(a.union(b)) == x | y
    assert language(a.intersect(b)) == x & y
    assert language(a.difference(b)) == x - y
    assert language(a.complement()) == frozenset(ALL_SHORT) - x
    assert a.is_subset(b) == (x <= y)
    assert a.is_disjoint(b) == (not x & y)
    assert (a == b) == (x == y)
    assert a.num_members == len(x)
    assert union_all([a, b, a]) == a | b
    assert intersect_all([a, b]) == a & b


@bounded
@given(FINITE, FINITE)
def test_concatenation(x: frozenset[str], y: frozenset[str]) -> None:
    assert concat(literals(x), literals(y)) == literals(v + w for v in x for w in y)


@bounded
@given(FINITE, st.integers(0, 2), st.integers(0, 2))
def test_repetition(x: frozenset[str], minimum: int, more: int) -> None:
    words = frozenset(
        "".join(parts)
        for n in range(minimum, minimum + more + 1)
        for parts in itertools.product(sorted(x), repeat=n)
    )
    assert repeat(literals(x), minimum, minimum + more) == literals(words)
    endless = language(repeat(literals(x), minimum, None))
    assert short(words) <= endless


@bounded
@given(FINITE)
def test_laws_make_equal_values(x: frozenset[str]) -> None:
    a = literals(x)
    assert a.complement().complement() == a
    assert star(star(a)) == star(a)
    assert star(a) == optional(concat(a, star(a)))
    assert a.union(a.complement()) == any_text()
    assert concat(a, EPSILON) == a
    assert concat(a, EMPTY) == EMPTY
    assert hash(a | EMPTY) == hash(a)


@bounded
@given(FINITE)
def test_the_shortest_member(x: frozenset[str]) -> None:
    found = literals(x).shortest()
    if not x:
        assert found is None
    else:
        assert found == min((w.encode() for w in x), key=lambda w: (len(w), w))


def is_trimmed(dfa: Dfa) -> bool:
    """Every state is reached from the start and reaches an accepting one."""
    after = [set(row[row >= 0].tolist()) for row in dfa.transitions]
    reached, queue = {0}, [0]
    for state in queue:
        for target in after[state] - reached:
            reached.add(target)
            queue.append(target)
    alive = set(np.flatnonzero(dfa.accepting).tolist())
    while True:
        more = {s for s in range(dfa.num_states) if s not in alive and after[s] & alive}
        if not more:
            return len(reached) == len(alive) == dfa.num_states
        alive |= more


@bounded
@given(FINITE, FINITE)
def test_no_state_is_a_dead_end(x: frozenset[str], y: frozenset[str]) -> None:
    for dfa in (literals(x) - literals(y), literals(x).complement(), star(literals(x))):
        assert dfa.is_empty or is_trimmed(dfa)


def test_every_valid_utf8_text_and_no_other() -> None:
    texts = any_text()
    for code_point in [0, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF]:
        assert texts.accepts(chr(code_point).encode())
    for data in [
        b"\x80",
        b"\xc0\x80",
        b"\xe0\x80\x80",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xe2",
    ]:
        assert not texts.accepts(data)


@bounded
@given(st.lists(st.tuples(st.integers(0, 0x10FFFF), st.integers(0, 300)), max_size=5))
def test_a_set_of_characters_holds_its_members_alone(spans: list[tuple[int, int]]) -> None:
    from ramet.grammars.regular.automata.utf8 import contains, normalised

    ranges = normalised((low, min(low + size, 0x10FFFF)) for low, size in spans)
    dfa = characters(ranges)
    near = {c + d for pair in ranges for c in pair for d in (-1, 0, 1)} | {0, 0x10FFFF}
    for code_point in near:
        if 0 <= code_point <= 0x10FFFF and not 0xD800 <= code_point < 0xE000:
            assert dfa.accepts(chr(code_point).encode()) == contains(ranges, code_point)


def test_minimal_forms_are_minimal() -> None:
    assert regex_dfa("(a|b)*abb").num_states == 4
    assert regex_dfa("(?:aa)*").num_states == 2
    assert regex_dfa("a{3}|a{4}|a{5}").num_states == 6
    assert literals(["ab", "cb", "db"]).num_states == 3
    assert star(characters(((0, 0x10FFFF),))) == any_text()


def test_minimisation_agrees_with_brute_force(rng: random.Random) -> None:
    """Random automata against the partition that splits states until nothing changes."""
    for _ in range(200):
        num_states, num_classes = rng.randrange(1, 9), rng.randrange(1, 4)
        table = np.array(
            [
                [rng.randrange(-1, num_states) for _ in range(num_classes)]
                for _ in range(num_states)
            ],
            np.int32,
        )
        accepting = np.array([rng.random() < 0.4 for _ in range(num_states)])
        reached = [0]
        for s in reached:
            reached += [t for t in table[s].tolist() if t >= 0 and t not in reached]
        number = {s: i for i, s in enumerate(reached)} | {-1: -1}
        table = np.array([[number[t] for t in table[s].tolist()] for s in reached], np.int32)
        accepting = accepting[reached]
        live = set(np.flatnonzero(accepting).tolist())
        while more := {
            s for s in range(len(table)) if s not in live and live & set(table[s].tolist())
        }:
            live |= more
        group = {s: int(accepting[s]) for s in live}
        while True:
            key = {s: (group[s], *(group.get(t, -1) for t in table[s].tolist())) for s in live}
            numbers = {k: i for i, k in enumerate(sorted(set(key.values())))}
            finer = {s: numbers[key[s]] for s in live}
            if len(set(finer.values())) == len(set(group.values())):
                break
            group = finer
        dfa = Dfa.from_table(np.arange(256, dtype=np.uint8) % num_classes, table, accepting)
        assert dfa.num_states == (len(set(group.values())) if 0 in live else 0)


def test_five_thousand_values() -> None:
    values = [f"value {i * 7919 % 100_003}" for i in range(5000)]
    dfa = literals(values)
    assert dfa.num_members == 5000
    assert all(dfa.accepts(v.encode()) for v in values[::97])
    assert not dfa.accepts(b"value 100003")


def test_limits_end_in_an_error() -> None:
    small = RegularLimits(max_states=100)
    with pytest.raises(GrammarTooComplexError):
        repeat(literal("a"), 0, 1000, limits=small)
    with pytest.raises(GrammarTooComplexError):
        regex_dfa("(a|b)*a(a|b){12}", limits=small)
    with pytest.raises(GrammarTooComplexError):
        literals((str(i) for i in range(1000)), small)
    with pytest.raises(GrammarTooComplexError):
        regex_dfa("(a|b)*a(a|b){20}", limits=RegularLimits(max_work=10_000))


def test_a_lone_surrogate_is_no_text() -> None:
    with pytest.raises(ConstraintError, match="surrogate"):
        literals(["a", "\ud800"])


def test_values_are_immutable() -> None:
    dfa = literal("a")
    with pytest.raises(ValueError):
        dfa.table[0, 0] = 1
    with pytest.raises(ValueError):
        dfa.transitions[0, 0] = 1

"""Promised: exactly what a grammar derives, however recursive or ambiguous, and no dead ends."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ramet.grammars.ebnf import GrammarAutomaton, build_network
from ramet.grammars.ebnf.ast import (
    Alternatives,
    Call,
    Expression,
    Repeat,
    Rules,
    Sequence,
    Terminal,
)
from ramet.grammars.errors import ConstraintError, GrammarTooComplexError
from ramet.grammars.regular import RegularLimits, literal

Walk = Callable[[GrammarAutomaton, str], int]

NAMES = "ABC"
MAX_LEN = 5
TEXTS = ["".join(t) for n in range(MAX_LEN + 1) for t in itertools.product("ab", repeat=n)]

leaves = st.one_of(
    st.sampled_from(["a", "b", "", "ab"]).map(lambda t: Terminal(literal(t))),
    st.sampled_from(NAMES).map(Call),
)
expressions: st.SearchStrategy[Expression] = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda p: Sequence(tuple(p))),
        st.lists(inner, min_size=1, max_size=3).map(lambda o: Alternatives(tuple(o))),
        st.builds(Repeat, inner, st.integers(0, 1), st.sampled_from([1, 2, None])),
    ),
    max_leaves=5,
)
grammars = st.fixed_dictionaries(dict.fromkeys(NAMES, expressions))


def derived(rules: dict[str, Expression]) -> dict[str, frozenset[str]]:
    """What each rule derives, up to MAX_LEN characters: by repeating until nothing is new."""
    known = {name: frozenset[str]() for name in rules}

    def texts(expression: Expression) -> frozenset[str]:
        match expression:
            case Terminal(dfa):
                shortest = dfa.shortest()
                return frozenset() if shortest is None else frozenset({shortest.decode()})
            case Call(name):
                return known[name]
            case Sequence(parts):
                found = frozenset({""})
                for part in parts:
                    found = joined(found, texts(part))
                return found
            case Alternatives(options):
                return frozenset().union(*map(texts, options))
            case Repeat(part, minimum, maximum):
                one = texts(part)
                result, power = frozenset[str](), frozenset({""})
                for n in range((MAX_LEN + 2 if maximum is None else maximum) + 1):
                    if n >= minimum:
                        result |= power
                    power = joined(power, one)
                return result
            case _:
                raise AssertionError(expression)

    while True:
        more = {name: texts(expression) for name, expression in rules.items()}
        if more == known:
            return known
        known = more


def joined(x: frozenset[str], y: frozenset[str]) -> frozenset[str]:
    return frozenset(v + w for v in x for w in y if len(v) + len(w) <= MAX_LEN)


def call(*names: str) -> Sequence:
    return Sequence(tuple(Call(n) if n and n in NAMES else Terminal(literal(n)) for n in names))


@settings(max_examples=250, deadline=None)
@given(grammars)
@example({"A": Alternatives((call("A", "A"), call("a"), call(""))), "B": call("b"), "C": call("a")})
@example(
    {
        "A": Alternatives((call("B", "a"), call("b"))),
        "B": Alternatives((call("A", "b"), call("C"))),
        "C": Alternatives((call("A"), call(""))),
    }
)
@example(
    {
        "A": Alternatives((call("C", "A", "b"), call("a"))),
        "B": call("b"),
        "C": Alternatives((call(""), call("b"))),
    }
)
@example(
    {
        "A": call("B", "B", "a"),
        "B": Alternatives((call("B", "C"), call(""))),
        "C": Alternatives((call("b"), call("C", "b"))),
    }
)
def test_exactly_what_is_derived(read: Walk, rules: dict[str, Expression]) -> None:
    expected = derived(rules)["A"]
    try:
        automaton = GrammarAutomaton(
            build_network(Rules(rules, "A"), RegularLimits(max_states=5000))
        )
    except GrammarTooComplexError:
        return
    except ConstraintError:
        assert not expected
        return
    for text in TEXTS:
        state = read(automaton, text)
        assert (state >= 0 and automaton.is_accepting(state)) == (text in expected), text
        if state < 0:
            assert not any(member.startswith(text) for member in expected)
        else:
            assert completable(automaton, state), text


def completable(automaton: GrammarAutomaton, state: int) -> bool:
    """Whether an accepting state is near, looking first where the stacks are smallest."""
    seen, queue = {state}, [(0, 0, state)]
    while queue and len(seen) < 2000:
        _, distance, at = heapq.heappop(queue)
        if automaton.is_accepting(at):
            return True
        for target in set(automaton.row(at).tolist()) - {-1} - seen:
            seen.add(target)
            size = min(stack for _, stack in automaton.configurations(target))
            heapq.heappush(queue, (size, distance + 1, target))
    return False


@pytest.mark.parametrize(
    ("body", "most"),
    [
        (Alternatives((call("A", "A"), call("a"))), 3),
        (Alternatives((call("a", "A"), call("a"))), 3),
        (Alternatives((call("A", "a"), call("a"))), 3),
        (Alternatives((call("A", "b", "A"), call("a"))), 4),
    ],
)
def test_ambiguity_and_recursion_without_brackets_need_few_states(
    read: Walk, body: Expression, most: int
) -> None:
    automaton = GrammarAutomaton(build_network(Rules({"A": body}, "A"), RegularLimits()))
    states = {read(automaton, text[:n]) for text in ("a" * 200, "ab" * 100) for n in range(200)}
    assert len(states - {-1}) <= most


def test_deep_nesting_is_linear(read: Walk) -> None:
    body = Alternatives((call("a", "A", "b"), call("")))
    automaton = GrammarAutomaton(build_network(Rules({"A": body}, "A"), RegularLimits()))
    state = read(automaton, "a" * 3000 + "b" * 3000)
    assert state >= 0
    assert automaton.is_accepting(state)
    assert len(automaton.configurations(state)) == 1


def test_equal_grammars_have_equal_keys() -> None:
    body = Alternatives((call("a", "A"), call("b")))
    one, two = (
        GrammarAutomaton(build_network(Rules({name: expression}, name), RegularLimits()))
        for name, expression in [("A", body), ("A", body)]
    )
    assert one.key == two.key

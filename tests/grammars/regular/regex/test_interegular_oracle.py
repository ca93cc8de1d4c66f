"""Promised: automata of regexes, and their boolean operations, equal interegular's.

(Its lookaheads inside alternatives differ from ``re``'s, with which ours are compared elsewhere.)
"""

from __future__ import annotations

import itertools

import interegular
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.grammars.regular import Dfa, regex_dfa

TEXTS = ["".join(t) for n in range(5) for t in itertools.product("ab1", repeat=n)]


def patterns() -> st.SearchStrategy[str]:
    atoms = st.sampled_from(["a", "b", "1", "[ab]", "[^a]", r"\d", r"\w", "."])

    def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.one_of(
            st.lists(inner, min_size=1, max_size=3).map("".join),
            st.lists(inner, min_size=2, max_size=3).map(lambda o: f"(?:{'|'.join(o)})"),
            st.builds(lambda p, q: f"(?:{p}){q}", inner, st.sampled_from(["*", "+", "?", "{1,3}"])),
        )

    return st.recursive(atoms, larger, max_leaves=5)


def accepted(dfa: Dfa) -> set[str]:
    return {text for text in TEXTS if dfa.accepts(text.encode())}


@settings(max_examples=60, deadline=None)
@given(patterns(), patterns())
def test_languages_and_their_combinations(first: str, second: str) -> None:
    ours = regex_dfa(first), regex_dfa(second)
    theirs = [interegular.parse_pattern(p).to_fsm() for p in (first, second)]
    sets = [{t for t in TEXTS if fsm.accepts(t)} for fsm in theirs]
    assert [accepted(dfa) for dfa in ours] == sets
    assert accepted(ours[0] & ours[1]) == {t for t in TEXTS if (theirs[0] & theirs[1]).accepts(t)}
    assert accepted(ours[0] - ours[1]) == {t for t in TEXTS if (theirs[0] - theirs[1]).accepts(t)}
    if (theirs[0] & theirs[1]).empty():
        assert not accepted(ours[0] & ours[1])

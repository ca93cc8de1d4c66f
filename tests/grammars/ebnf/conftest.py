"""Reading texts with a grammar's automaton."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ramet.grammars.constraints import Ebnf
from ramet.grammars.ebnf import GrammarAutomaton, ebnf_automaton

Accepts = Callable[[str, str], bool]


def walk(automaton: GrammarAutomaton, text: str) -> int:
    """The state after a text; -1 if it begins no member."""
    state = automaton.start
    for byte in text.encode():
        if state >= 0:
            state = int(automaton.row(state)[byte])
    return state


@pytest.fixture(scope="session")
def accepts() -> Accepts:
    """Whether a grammar derives a text."""
    known: dict[str, GrammarAutomaton] = {}

    def check(grammar: str, text: str) -> bool:
        if grammar not in known:
            known[grammar] = ebnf_automaton(Ebnf(grammar))
        state = walk(known[grammar], text)
        return state >= 0 and known[grammar].is_accepting(state)

    return check


@pytest.fixture(scope="session")
def read() -> Callable[[GrammarAutomaton, str], int]:
    return walk

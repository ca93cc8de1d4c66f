"""Promised: however long and deep a text is, its readings are kept, and equal ones are one."""

from __future__ import annotations

from ramet.grammars import Ebnf
from ramet.grammars.ebnf import ebnf_automaton

NESTED = r"""
root ::= "(" root ")" | "[" root "]" | word
word ::= [a-z]+ | word "-" word
"""


def follow(automaton: object, text: bytes) -> int:
    state = automaton.start  # type: ignore[attr-defined]
    for byte in text:
        if state < 0:
            break
        state = int(automaton.row(state)[byte])  # type: ignore[attr-defined]
    return state


def test_deep_texts() -> None:
    automaton = ebnf_automaton(Ebnf(NESTED))
    brackets = ["()" if i * i % 7 < 3 else "[]" for i in range(2000)]
    opened = "".join(b[0] for b in brackets)
    closed = "".join(b[1] for b in reversed(brackets))
    end = follow(automaton, f"{opened}a-b{closed}".encode())
    assert automaton.is_accepting(end)
    wrong = closed.translate(str.maketrans(")]", "])"))
    assert follow(automaton, f"{opened}a{wrong}".encode()) < 0
    # On the way back, and again, all states are known.
    assert follow(automaton, f"{opened}a-b{closed}".encode()) == end


def test_equal_readings_are_one_state() -> None:
    automaton = ebnf_automaton(Ebnf(NESTED))
    states: dict[frozenset[tuple[int, int]], int] = {}
    queue = [automaton.start]
    for state in queue:  # Grows on the way.
        assert states.setdefault(automaton.configurations(state), state) == state
        if len(queue) < 3000:
            known = set(queue)
            queue += sorted({t for t in automaton.row(state).tolist() if t >= 0} - known)
    assert len(queue) >= 3000

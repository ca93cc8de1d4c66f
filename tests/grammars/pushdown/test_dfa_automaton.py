"""Promised: many lookaheads are exact, and only the states that are read are kept."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.grammars import (
    EmptyConstraintError,
    GrammarCompiler,
    GrammarTooComplexError,
    Regex,
    Vocabulary,
)
from ramet.grammars.pushdown.dfa_automaton import DfaAutomaton
from ramet.grammars.regular import regex_dfa

BYTES = Vocabulary.from_tokens([bytes((i,)) for i in range(256)] + [None], {256})


def lookaheads(letters: str, length: int, rest: str) -> str:
    return "".join(f"(?=.{{1,{length}}}{c})" for c in letters) + rest


SEVEN = lookaheads("abcdefg", 60, ".*")


@pytest.fixture(scope="module")
def compiler() -> GrammarCompiler:
    return GrammarCompiler(BYTES)


@given(st.sampled_from(["[ab]{2,5}a", "(?:a|bé)*", "é?a{3}", "(?=.*b)[ab]+a"]), st.text("abé"))
@settings(max_examples=60)
def test_rows_and_completions(pattern: str, text: str) -> None:
    dfa = regex_dfa(pattern)
    automaton = DfaAutomaton(dfa)
    state = automaton.start
    for byte in text.encode():
        state = int(automaton.row(state)[byte])
        if state < 0:
            break
    assert (state >= 0 and automaton.is_accepting(state)) == bool(re.fullmatch(pattern, text))
    rest = automaton.shortest_completion(automaton.start).decode()
    assert re.fullmatch(pattern, rest)


@given(st.permutations("abcdefg"), st.integers(0, 60), st.sampled_from(["x", "é"]))
@settings(max_examples=40)
def test_seven_lookaheads(
    compiler: GrammarCompiler, letters: list[str], before: int, filler: str
) -> None:
    grammar = compiler.compile(Regex(SEVEN))
    text = filler * before + "".join(letters)
    assert grammar.match(text).accepted == (re.fullmatch(SEVEN, text) is not None)


def test_few_states_are_kept(compiler: GrammarCompiler) -> None:
    grammar = compiler.compile(Regex(SEVEN))
    row = np.zeros(BYTES.num_words, np.int32)
    matcher = grammar.matcher()
    for byte in b"z" * 54:
        matcher.fill_mask(row)
        assert matcher.accept(byte)
    matcher.fill_mask(row)
    assert not row[ord("z") >> 5] >> (ord("z") & 31) & 1, "seven letters must come within seven"
    assert sorted(matcher.shortest_completion()) == sorted(b"abcdefg")
    assert grammar.num_states < 5_000


def test_conditions_that_exclude_each_other(compiler: GrammarCompiler) -> None:
    with pytest.raises(EmptyConstraintError):
        compiler.compile(Regex(lookaheads("abcdefg", 60, ".{3,6}")))


def test_too_many_are_refused(compiler: GrammarCompiler) -> None:
    with pytest.raises(GrammarTooComplexError):
        compiler.compile(Regex(lookaheads("abcdefghijklmnop", 60, ".*")))

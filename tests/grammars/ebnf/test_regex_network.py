"""Promised: regexes with long counted repetitions are exact, and their masks are few."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.grammars import Ebnf, Grammar, GrammarCompiler, Matcher, Regex, Vocabulary

TOKENS = [bytes((i,)) for i in range(256)]
TOKENS += [t.encode() for t in ("aa", "ab", "ba", "b b", "é", "aéa", "  ", "a b")]
VOCAB = Vocabulary.from_tokens([*TOKENS, None], {len(TOKENS)})
LETTERS = "ab é"


@pytest.fixture(scope="module")
def networks() -> Iterator[GrammarCompiler]:
    """A compiler that makes a network of any regex."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ramet.grammars.compile._MAX_REGEX_SIZE", -1)
        patch.setattr("ramet.grammars.ebnf.regex_network._SMALL", 1)
        patch.setattr("ramet.grammars.ebnf.regex_network._MAX_REGULAR_STATES", 3)
        yield GrammarCompiler(VOCAB)


def counted(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    bounds = st.tuples(st.integers(0, 6), st.integers(0, 9))
    return st.builds(lambda p, b: f"(?:{p}){{{b[0]},{b[0] + b[1]}}}", inner, bounds)


patterns = st.recursive(
    st.sampled_from(["a", "b", "[ab]", "é", " ", r"[aé]b?", "(?:a|ab)", "[^b]"]),
    lambda inner: st.one_of(
        counted(inner),
        st.lists(inner, min_size=2, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=2).map(lambda parts: f"(?:{'|'.join(parts)})"),
        inner.map(lambda part: f"(?:{part})*"),
    ),
    max_leaves=5,
)


def mask(matcher: Matcher) -> np.ndarray:
    row = np.zeros(VOCAB.num_words, np.int32)
    matcher.fill_mask(row)
    return row


def allowed(row: np.ndarray) -> list[int]:
    return np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist()


def follow(one: Grammar, other: Grammar, rng: random.Random, steps: int) -> None:
    """Both grammars have the same masks along a random text."""
    first, second = one.matcher(), other.matcher()
    for _ in range(steps):
        row = mask(first)
        assert (row == mask(second)).all()
        tokens = [t for t in allowed(row) if t < len(TOKENS)]
        assert first.is_accepting == second.is_accepting
        if not tokens:
            break
        token = rng.choice(tokens)
        assert first.accept(token)
        assert second.accept(token)
    assert len(first.shortest_completion()) == len(second.shortest_completion())


@given(patterns, st.lists(st.text(LETTERS, max_size=9), max_size=8), st.randoms())
@settings(max_examples=150)
def test_equals_one_automaton(
    networks: GrammarCompiler, pattern: str, texts: list[str], rng: random.Random
) -> None:
    network = networks.compile(Regex(pattern))
    for text in texts:
        assert network.match(text).accepted == (re.fullmatch(pattern, text) is not None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ramet.grammars.compile._MAX_REGEX_SIZE", 1 << 40)
        automaton = GrammarCompiler(VOCAB).compile(Regex(pattern))
    follow(network, automaton, rng, 25)


@pytest.mark.parametrize(
    ("pattern", "accepted", "refused"),
    [
        (r"(\w+ ){1,300}\w+", ["a b", "é " * 300 + "z"], ["a", "a " * 301 + "z", "a  b"]),
        (r"(\p{L}|\p{N}|\p{P}){0,1000}", ["", "é1." * 333 + "x"], ["é1." * 333 + "xy", "a b"]),
        (r"([a-z]{1,20}\d{2,9}; ?){5,2000}", ["ab12; " * 2000], ["ab12; " * 4, "ab12; " * 2001]),
        (r"(a|aa){100,500}b", ["a" * 100 + "b", "a" * 1000 + "b"], ["a" * 99 + "b", "b"]),
        (r"((\w{1,9} ){1,40}\n){1,60}", ["ab cd \n" * 60], ["ab cd \n" * 61, "ab cd"]),
    ],
)
def test_long_repetitions(pattern: str, accepted: list[str], refused: list[str]) -> None:
    grammar = GrammarCompiler(VOCAB).compile(Regex(pattern))
    for text in accepted:
        assert grammar.match(text).accepted
    for text in refused:
        assert not grammar.match(text).accepted


def test_masks_in_the_middle_are_shared() -> None:
    """A text of 800 words in a repetition of 1,000 makes few states but its own."""
    grammar = GrammarCompiler(VOCAB).compile(Regex(r"(\w+ ){1,1000}\w+"))
    matcher = grammar.matcher()
    for byte in b"ab " * 20:
        mask(matcher)
        assert matcher.accept(byte)
    before = grammar.num_states
    for byte in b"ab " * 800:
        mask(matcher)
        assert matcher.accept(byte)
    assert grammar.num_states - before <= 3 * 800


def test_repetitions_in_a_grammar() -> None:
    text = 'root ::= line{2,400}\nline ::= [a-z]{1,200} "=" [0-9]+ "\\n"'
    grammar = GrammarCompiler(VOCAB).compile(Ebnf(text))
    assert grammar.match("ab=1\n" * 400).accepted
    assert not grammar.match("ab=1\n" * 401).accepted
    assert not grammar.match("a" * 201 + "=1\n" * 2).accepted

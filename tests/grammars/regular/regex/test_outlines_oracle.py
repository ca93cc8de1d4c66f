"""Promised: masks equal outlines-core's, token for token, wherever both read a pattern alike."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from ramet.grammars import (
    Choice,
    ConstraintError,
    GrammarCompiler,
    JsonObject,
    Regex,
    Vocabulary,
    compile_constraint,
)
from ramet.grammars.outlines_backend import OutlinesGrammar, compile_with_outlines

EOS = 256
TOKENS: list[bytes | None] = [bytes((i,)) for i in range(256)] + [None]
TOKENS += [
    b"ab",
    b"abc",
    b"ab",
    b"12",
    "é".encode(),
    "éa".encode(),
    b"\xa9a",
    b"a\xc3",
    b" b",
    b"b-1",
]


@pytest.fixture(scope="module")
def vocab() -> Vocabulary:
    return Vocabulary.from_tokens(TOKENS, {EOS})


def patterns() -> st.SearchStrategy[str]:
    atoms = st.sampled_from(["a", "b", "é", "-", "[ab]", "[^a]", "[0-9]", ".", "[a-zé]", " "])

    def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.one_of(
            st.lists(inner, min_size=1, max_size=3).map("".join),
            st.lists(inner, min_size=2, max_size=3).map(lambda o: f"(?:{'|'.join(o)})"),
            st.builds(lambda p, q: f"(?:{p}){q}", inner, st.sampled_from(["*", "+", "?", "{1,3}"])),
        )

    return st.recursive(atoms, larger, max_leaves=5).map(lambda p: f"(?:{p})[ab1]")


@settings(max_examples=40, deadline=None)
@given(patterns(), st.randoms(use_true_random=False))
def test_masks_are_equal_on_random_walks(
    vocab: Vocabulary, pattern: str, rng: random.Random
) -> None:
    constraint = Regex(pattern)
    try:
        theirs = compile_with_outlines(constraint, vocab).matcher()
    except ConstraintError:
        reject()  # Some patterns that may match nothing are too much for it.
    ours = compile_constraint(constraint, vocab).matcher()
    row, other = np.zeros(vocab.num_words, np.int32), np.zeros(vocab.num_words, np.int32)
    for _ in range(12):
        ours.fill_mask(row)
        theirs.fill_mask(other)
        assert np.array_equal(row, other)
        ids = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist()
        token_id = rng.choice(ids)
        assert ours.accept(token_id)
        assert theirs.accept(token_id)
        if ours.is_finished:
            break


def test_the_backend_keeps_the_matchers_contract(vocab: Vocabulary) -> None:
    grammar = compile_with_outlines(Choice(("abc", "ab-1")), vocab)
    matcher = grammar.matcher()
    assert grammar.match("abc")
    assert not grammar.match("ab")
    assert matcher.forced_bytes() == b"ab"
    assert not matcher.accept(ord("x"))
    assert matcher.accept(TOKENS.index(b"ab"))
    fork = matcher.fork()
    assert matcher.accept(ord("c"))
    assert matcher.is_accepting
    assert matcher.accept(EOS)
    assert matcher.is_finished
    matcher.rollback(2)
    row, other = np.zeros(vocab.num_words + 2, np.int32), np.ones(vocab.num_words + 2, np.int32)
    matcher.fill_mask(row)
    fork.fill_mask(other)
    assert np.array_equal(row, other)
    allowed = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist()
    assert allowed == [ord("-"), ord("c")]


@pytest.mark.parametrize(
    ("constraint", "reason"),
    [
        (JsonObject(), "only regular"),
        (Regex(r"\w+", dialect="ecma"), "outlines-core"),
        (Regex("(?!a)[ab]"), "outlines-core"),
        (Regex(r"a\Z"), "outlines-core"),
        (Regex("("), "unterminated"),
        (Choice(()), "no text"),
    ],
)
def test_what_it_reads_otherwise_is_refused(
    vocab: Vocabulary, constraint: Regex | Choice | JsonObject, reason: str
) -> None:
    with pytest.raises(ConstraintError, match=reason):
        compile_with_outlines(constraint, vocab)


def test_a_compiler_uses_it_if_configured(vocab: Vocabulary) -> None:
    compiler = GrammarCompiler(vocab, regular_backend="outlines-core")
    assert isinstance(compiler.compile(Regex("a|bc")), OutlinesGrammar)
    assert not isinstance(compiler.compile(JsonObject()), OutlinesGrammar)

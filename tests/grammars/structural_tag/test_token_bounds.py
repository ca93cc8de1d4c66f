"""Promised: free text takes so many of the sequence's tokens, whatever they are, and no more."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.grammars import (
    Constraint,
    ConstraintError,
    FixedText,
    FreeText,
    Grammar,
    JsonSchema,
    Matcher,
    Part,
    Repeated,
    Series,
    StructuralTag,
    Tag,
    TriggeredTags,
    Vocabulary,
    compile_constraint,
    constraint_from_json,
    constraint_to_json,
)

TOKENS = ["<", ">", "a", "!", "<a", "a>", "aa", "aa>!", ">!", "a<", "<>!", "!a"]
EOS = len(TOKENS)
VOCAB = Vocabulary.from_tokens([*(t.encode() for t in TOKENS), None], {EOS})
JSON_VOCAB = Vocabulary.from_tokens(
    [*(t.encode() for t in TOKENS), b'"', b"0", b'a"<', None], {EOS + 3}
)

bounds = st.integers(0, 4).flatmap(
    lambda low: st.tuples(st.just(low), st.one_of(st.none(), st.integers(low, 5)))
)


def allowed(matcher: Matcher, vocab: Vocabulary = VOCAB) -> set[int]:
    row = np.zeros(vocab.num_words, np.int32)
    matcher.fill_mask(row)
    return {i for i in range(vocab.size) if row[i >> 5] >> (i & 31) & 1}


def may_go_on(ids: list[int], low: int, high: int | None) -> bool:
    """Whether tokens begin a text ``<...>!`` with so many tokens between the brackets."""
    text = "".join(TOKENS[i] for i in ids)
    starts = [sum(len(TOKENS[i]) for i in ids[:n]) for n in range(len(ids))]
    close = text.find(">", 1)
    end = len(text) if close < 0 else close
    count = sum(1 <= start < end for start in starts)
    if not "<".startswith(text[:1]) or (high is not None and count > high):
        return False
    if high == 0 and end > 1:
        return False
    return close < 0 or (count >= low and "!".startswith(text[close + 1 :]))


@settings(max_examples=60, deadline=None)
@given(bounds, st.data())
def test_against_counting_tokens(low_high: tuple[int, int | None], data: st.DataObject) -> None:
    low, high = low_high
    tag = Tag("<", FreeText(min_tokens=low, max_tokens=high), ">")
    grammar = compile_constraint(StructuralTag(Series((tag, FixedText("!")))), VOCAB)
    matchers: list[tuple[Matcher, list[int]]] = [(grammar.matcher(), [])]
    for _ in range(20):
        matcher, ids = matchers[data.draw(st.integers(0, len(matchers) - 1))]
        expected = {i for i in range(EOS) if may_go_on([*ids, i], low, high)}
        is_complete = "".join(TOKENS[i] for i in ids).endswith(">!")
        assert allowed(matcher) == (expected | {EOS} if is_complete else expected)
        assert matcher.is_accepting == is_complete
        assert expected or is_complete, "a dead end"
        match data.draw(st.sampled_from(["accept", "accept", "accept", "rollback", "fork"])):
            case "accept":
                token = data.draw(st.integers(0, EOS - 1))
                assert matcher.accept(token) == (token in expected)
                if token in expected:
                    ids.append(token)
            case "rollback":
                count = data.draw(st.integers(0, len(ids)))
                matcher.rollback(count)
                del ids[len(ids) - count :]
            case _ if len(matchers) < 4:
                matchers.append((matcher.fork(), ids.copy()))


def test_what_follows_is_forced_when_the_tokens_are_used_up() -> None:
    grammar = compile_constraint(StructuralTag(Tag("<", FreeText(max_tokens=2), ">!")), VOCAB)
    matcher = grammar.matcher()
    for token in ("<", "a"):
        assert matcher.accept(TOKENS.index(token))
        assert matcher.forced_bytes() == b""
    assert matcher.accept(TOKENS.index("aa"))
    assert matcher.forced_bytes() == b">!"
    assert allowed(matcher) == {TOKENS.index(">"), TOKENS.index(">!")}
    matcher.rollback(1)
    assert matcher.forced_bytes() == b""


def test_a_character_that_has_begun_is_completed() -> None:
    tokens = [b"<", b">", "é".encode()[:1], "é".encode()[1:], b"a", "é>".encode()[1:]]
    vocab = Vocabulary.from_tokens([*tokens, None], {len(tokens)})
    grammar = compile_constraint(StructuralTag(Tag("<", FreeText(max_tokens=1), ">")), vocab)
    matcher = grammar.matcher()
    assert matcher.accept(0)
    assert matcher.accept(2)
    assert allowed(matcher, vocab) == {3, 5}
    assert matcher.accept(3)
    assert allowed(matcher, vocab) == {1}


def test_each_tag_has_its_own_tokens() -> None:
    note = Tag("<", FreeText(max_tokens=1), ">")
    for root in (Repeated(note), TriggeredTags((note,))):
        matcher = compile_constraint(StructuralTag(root), VOCAB).matcher()
        for _ in range(3):
            for token in ("<", "aa", ">"):
                assert matcher.accept(TOKENS.index(token))
        assert matcher.accept(TOKENS.index("<a"))
        assert matcher.accept(TOKENS.index("a"))
        assert allowed(matcher) <= {i for i, t in enumerate(TOKENS) if t.startswith(">")}


def test_text_without_tokens_has_any_number_of_them() -> None:
    grammar = compile_constraint(
        StructuralTag(Tag("<", FreeText(min_tokens=2, max_tokens=3), ">")), VOCAB
    )
    assert grammar.match("<aaaaaaaa>")
    assert not grammar.match("<>")


def test_special_tokens_around_and_json_after(
    special_vocab: Vocabulary, allowed: Callable[[Matcher], set[int]]
) -> None:
    thought = Tag("", FreeText(max_tokens=3), "</think>")
    grammar = compile_constraint(
        StructuralTag(Series((thought, JsonSchema({"type": "integer"})))), special_vocab
    )
    matcher = grammar.matcher()
    for text in (b"ab", b"a", b"b"):
        assert matcher.accept(special_vocab.tokens.index(text))
    (end,) = (special_vocab.special_ids["</think>"],)
    assert allowed(matcher) == {end, ord("<"), special_vocab.tokens.index(b"</")}
    assert matcher.accept(end)
    assert matcher.accept(ord("7"))
    assert matcher.is_accepting


def test_few_states_for_many_tokens() -> None:
    grammar = compile_constraint(StructuralTag(Tag("<", FreeText(max_tokens=900), ">")), VOCAB)
    matcher = grammar.matcher()
    assert matcher.accept(0)
    for _ in range(900):
        assert matcher.accept(TOKENS.index("a"))
    assert allowed(matcher) == {TOKENS.index(">")}
    assert grammar.num_states < 30


def test_bounds_that_make_no_sense_are_refused() -> None:
    for text in (FreeText(min_tokens=-1), FreeText(min_tokens=3, max_tokens=2)):
        with pytest.raises(ConstraintError, match="out of order") as caught:
            compile_constraint(StructuralTag(Series((text,))), VOCAB)
        assert caught.value.path == "/root/parts/0"


def test_as_json(compile_: Callable[[Constraint], Grammar]) -> None:
    constraint = StructuralTag(Tag("<", FreeText(("a",), 1, 4), ">"))
    assert constraint_from_json(constraint_to_json(constraint)) == constraint
    assert compile_(constraint).match("<b>")


parts = st.recursive(
    st.one_of(
        st.sampled_from([FixedText("a"), JsonSchema({"enum": [0, "a"]})]),
        bounds.map(lambda b: Tag("<", FreeText(min_tokens=b[0], max_tokens=b[1]), ">")),
        bounds.map(lambda b: Tag("<a", FreeText(min_tokens=b[0], max_tokens=b[1]), "a>!")),
    ),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(lambda p: Series(tuple(p))),
        st.tuples(inner, st.integers(0, 2)).map(lambda p: Repeated(p[0], p[1], p[1] + 1)),
    ),
    max_leaves=4,
)


@settings(max_examples=100, deadline=None)
@given(parts, st.randoms(use_true_random=False))
def test_each_position_has_a_completion_in_tokens(part: Part, rng: random.Random) -> None:
    matcher = compile_constraint(
        StructuralTag(Series((part, FixedText("!")))), JSON_VOCAB
    ).matcher()
    for _ in range(12):
        completed = matcher.fork()
        pieces = matcher.completion()
        for piece in pieces:
            taken = completed.accept_bytes(piece) if isinstance(piece, bytes) else None
            assert completed.accept(piece) if taken is None else taken
        assert completed.is_accepting
        following = sorted(allowed(matcher, JSON_VOCAB) - {JSON_VOCAB.size - 1})
        if not following:
            break
        assert matcher.accept(rng.choice(following))
        if rng.random() < 0.2:
            matcher.rollback(1)


@pytest.mark.parametrize(
    ("low", "high", "before", "completion"),
    [
        (0, 2, "<", ">!"),
        (0, 2, "< a aa", ">!"),
        (3, None, "<", "aaa>!"),
        (3, 5, "< aa", "aa>!"),
        (900, None, "<", "a" * 900 + ">!"),
    ],
)
def test_completions_take_the_tokens_that_a_text_needs(
    low: int, high: int | None, before: str, completion: str
) -> None:
    tag = Tag("<", FreeText(min_tokens=low, max_tokens=high), ">!")
    matcher = compile_constraint(StructuralTag(tag), VOCAB).matcher()
    for token in before.split():
        assert matcher.accept(TOKENS.index(token))
    assert matcher.shortest_completion() == completion.encode()

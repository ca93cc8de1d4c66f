"""Merge lists go through ``tiktoken`` only where it gives what the pairs give."""

from __future__ import annotations

import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from ramet.runtime.tokenizer.merges import lists_all_pairs, ranked_tokens, tiktoken_ranks


@st.composite
def merge_lists(draw: st.DrawFn) -> list[tuple[bytes, bytes]]:
    """Merges of parts that are bytes, or made by merges; seldom those of a trained vocabulary."""
    tokens = [b"a", b"b", b"c"]
    merges: list[tuple[bytes, bytes]] = []
    for _ in range(draw(st.integers(1, 6))):
        pair = draw(st.sampled_from(tokens)), draw(st.sampled_from(tokens))
        if pair not in merges:
            merges.append(pair)
            tokens.append(pair[0] + pair[1])
    return draw(st.one_of(st.just(merges), st.permutations(merges)))


def by_pairs(merges: list[tuple[bytes, bytes]], text: str, *, ignore_merges: bool) -> list[bytes]:
    texts = dict.fromkeys(["a", "b", "c", *((a + b).decode() for a, b in merges)])
    vocab = {token: i for i, token in enumerate(texts)}
    pairs = [(a.decode(), b.decode()) for a, b in merges]
    library = Tokenizer(models.BPE(vocab, pairs, ignore_merges=ignore_merges))
    return [token.encode() for token in library.encode(text).tokens]


def by_tokens(ranked: list[bytes], text: str) -> list[bytes]:
    order = dict.fromkeys([bytes([byte]) for byte in range(256)] + ranked)
    ranks = {token: rank for rank, token in enumerate(order)}
    encoding = tiktoken.Encoding("x", pat_str=r"\S+", mergeable_ranks=ranks, special_tokens={})
    return encoding.decode_tokens_bytes(encoding.encode_ordinary(text))


@settings(max_examples=300, deadline=None)
@given(merges=merge_lists(), texts=st.lists(st.text("abc", min_size=1, max_size=12), min_size=8))
def test_ranks_of_tokens_give_what_pairs_give(
    merges: list[tuple[bytes, bytes]], texts: list[str]
) -> None:
    left, right = [a for a, _ in merges], [b for _, b in merges]
    ranked = ranked_tokens(left, right)
    if ranked is not None:
        for text in texts:
            assert by_tokens(ranked, text) == by_pairs(merges, text, ignore_merges=False)


def test_a_token_that_its_pairs_do_not_lead_to_is_found() -> None:
    # "ab" comes first, so "a" + "bc" never meet, and "abc" is not made from "ab" + "c".
    merges = [(b"a", b"b"), (b"b", b"c"), (b"a", b"bc")]
    assert by_pairs(merges, "abc", ignore_merges=False) == [b"ab", b"c"]
    assert ranked_tokens([a for a, _ in merges], [b for _, b in merges]) is None


def test_trained_merges_are_ranked() -> None:
    merges = [(b"a", b"b"), (b"ab", b"c"), (b"ab", b"abc"), (b"c", b"c")]
    ranked = ranked_tokens([a for a, _ in merges], [b for _, b in merges])
    assert ranked == [b"ab", b"abc", b"ababc", b"cc"]


def test_merges_made_from_ranks_list_every_pair() -> None:
    left, right = [b"a", b"b", b"a", b"ab"], [b"b", b"c", b"bc", b"c"]
    assert lists_all_pairs(left, right)
    assert not lists_all_pairs(left[:-1], right[:-1])
    assert tiktoken_ranks([], left, right, ignores_merges=True) == [b"ab", b"bc", b"abc"]
    assert tiktoken_ranks([], left, right, ignores_merges=False) is None
    assert tiktoken_ranks([b"xyz"], left, right, ignores_merges=True) is None

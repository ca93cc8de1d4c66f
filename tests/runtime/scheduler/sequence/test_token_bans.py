"""Bad words are found in every token that holds them, and quickly."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.engine.config import EngineConfig
from ramet.runtime.scheduler.sequence.token_bans import BadWords, TokenTexts, pack

texts = st.lists(st.none() | st.text("ab", max_size=5).map(str.encode), max_size=20)


@settings(max_examples=200, deadline=None)
@given(texts, st.text("ab", min_size=1, max_size=4).map(str.encode))
def test_the_tokens_that_contain_a_text(tokens: list[bytes | None], part: bytes) -> None:
    found = TokenTexts(tokens, len(tokens)).containing(part)
    assert found == [i for i, token in enumerate(tokens) if token and part in token]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.text("ab", min_size=1, max_size=4).map(str.encode), min_size=1, max_size=12),
    st.lists(st.text("ab", min_size=1, max_size=9), min_size=1, max_size=3),
    st.lists(st.text("ab", max_size=5).map(str.encode), max_size=8),
)
def test_banned_are_the_tokens_that_complete_a_word(
    tokens: list[bytes], words: list[str], output: list[bytes]
) -> None:
    bad = BadWords(words, TokenTexts(tokens, len(tokens)))
    text = b""
    for piece in [*output, b""]:
        completes = [
            i
            for i, token in enumerate(tokens)
            if any(word.encode() in (text + token)[-len(token) - len(word) + 1 :] for word in words)
        ]
        assert bad.banned().tolist() == pack(completes, len(tokens)).tolist()
        bad.feed(piece)
        text += piece


def test_a_long_word_that_overlaps_itself_keeps_little() -> None:
    bad = BadWords(["a" * 4096], TokenTexts([b"a", b"aa", b"b"], 3))
    for _ in range(4090):
        assert not bad.banned().any()
        bad.feed(b"a")
    assert sum(len(rest) for rests in bad._by_rests for rest in rests) < 100


@pytest.mark.parametrize(
    "name",
    [
        "page_size",
        "num_pages",
        "cache_bytes",
        "max_context_len",
        "num_threads",
        "grammar_threads",
        "grammar_bytes",
        "max_num_seqs",
    ],
)
def test_a_configuration_takes_no_zero_for_a_size(name: str) -> None:
    with pytest.raises(InvalidParameterError, match=name):
        EngineConfig(**{name: 0})


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"max_context_len": 5}, "max_context_len"),
        ({"num_pages": 1, "page_size": 4}, "num_pages"),
        ({"policy": "best"}, "policy"),
        ({"regular_backend": "best"}, "regular_backend"),
        ({"max_wait_s": -1.0}, "max_wait_s"),
        ({"max_wait_s": float("nan")}, "max_wait_s"),
        ({"max_draft_len": -1}, "max_draft_len"),
        ({"tenant_weights": {"a": float("nan")}}, "weight"),
        ({"tenant_weights": {"a": "much"}}, "weight"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused_by_name(
    settings: dict[str, Any], name: str
) -> None:
    with pytest.raises(InvalidParameterError, match=name):
        EngineConfig(**settings)


def test_a_configuration_takes_no_absurd_number_of_threads() -> None:
    with pytest.raises(InvalidParameterError, match="num_threads"):
        EngineConfig(num_threads=100_000)

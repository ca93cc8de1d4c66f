"""Bad words are found in every token that holds them, and quickly."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.runtime.engine_config import EngineConfig
from ramet.runtime.errors import InvalidParameterError
from ramet.runtime.scheduler.restrictions import TokenTexts

texts = st.lists(st.none() | st.text("ab", max_size=5).map(str.encode), max_size=20)


@settings(max_examples=200, deadline=None)
@given(texts, st.text("ab", min_size=1, max_size=4).map(str.encode))
def test_the_tokens_that_contain_a_text(tokens: list[bytes | None], part: bytes) -> None:
    found = TokenTexts(tokens, len(tokens)).containing(part)
    assert found == [i for i, token in enumerate(tokens) if token and part in token]


@pytest.mark.parametrize(
    "name",
    [
        "page_size",
        "num_pages",
        "cache_bytes",
        "max_context_len",
        "num_threads",
        "grammar_threads",
        "max_grammars",
        "max_num_seqs",
    ],
)
def test_a_configuration_takes_no_zero_for_a_size(name: str) -> None:
    with pytest.raises(InvalidParameterError, match=name):
        EngineConfig(**{name: 0})


def test_a_configuration_takes_no_absurd_number_of_threads() -> None:
    with pytest.raises(InvalidParameterError, match="num_threads"):
        EngineConfig(num_threads=100_000)

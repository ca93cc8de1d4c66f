"""Texts and small languages that the tests of regular languages share."""

from __future__ import annotations

import random

import pytest
from hypothesis import strategies as st

# Few characters, so that random texts often match; one of each length in UTF-8.
ALPHABET = "ab1_ \né😀"


def short_texts() -> st.SearchStrategy[str]:
    return st.text(alphabet=ALPHABET, max_size=6)


@pytest.fixture
def rng() -> random.Random:
    return random.Random(20240607)

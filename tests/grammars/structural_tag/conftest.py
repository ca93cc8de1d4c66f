"""A small vocabulary with special tokens, and random walks through masks."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from ramet.grammars import Constraint, Grammar, Matcher, Vocabulary, compile_constraint

EOS, CALL, END_CALL, END_THINK = 256, 257, 258, 259
TOKENS = [
    *(bytes((i,)) for i in range(256)), None, None, None, None,
    b"<tool", b"_call>", b'{"', b'": ', b'"}', b"think>", b"</", b" 12", b"3]", b"ab",
    b"</tool_call>",
]  # fmt: skip
SPECIAL = {"<tool_call>": CALL, "</tool_call>": END_CALL, "</think>": END_THINK}

Compile = Callable[[Constraint], Grammar]


@pytest.fixture(scope="session")
def vocab() -> Vocabulary:
    return Vocabulary.from_tokens(TOKENS, {EOS})


@pytest.fixture(scope="session")
def special_vocab() -> Vocabulary:
    return Vocabulary.from_tokens(TOKENS, {EOS}, SPECIAL)


@pytest.fixture(scope="session")
def compile_(vocab: Vocabulary) -> Compile:
    return lambda constraint: compile_constraint(constraint, vocab)


@pytest.fixture(scope="session")
def allowed() -> Callable[[Matcher], set[int]]:
    """The ids that a matcher's mask allows."""

    def ids(matcher: Matcher) -> set[int]:
        row = np.zeros((len(TOKENS) + 31) // 32, np.int32)
        matcher.fill_mask(row)
        return {i for i in range(len(TOKENS)) if row[i >> 5] >> (i & 31) & 1}

    return ids


@pytest.fixture
def rng() -> random.Random:
    return random.Random(7)

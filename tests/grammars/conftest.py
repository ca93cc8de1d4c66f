"""Small vocabularies whose every mask can be checked token by token."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from ramet.grammars import Matcher, Vocabulary

_TEXTS = [
    "true", "false", "null", "name", "id", "tag", "ab", "abc", "foo", "bar", "12", "100", "0.5",
    "1e2", '{"', '"}', '":', '": ', '": "', '","', '", "', '"]', "[]", "{}", "}}", "]}", "},",
    "}, {", ', "', '": {"', '"},', '\\"', "\\n", "\\u00", "\\u", "e9", "é", "日本", "😀", " a",
    " {", ' "', "],[", "1,2", ',"', '{"a', '":1', '":true', 'a":', "00", "aa", "aaa", "-1",
]  # fmt: skip


def tiny_tokens() -> list[bytes | None]:
    """All bytes, some longer tokens (two of them equal), an end token (0) and an unused one (1)."""
    tokens: list[bytes | None] = [None, None]
    tokens += [bytes((b,)) for b in range(256)]
    tokens += [t.encode() for t in _TEXTS]
    tokens += [b"\xc3", b"\xe6\x97", b"\x9f\x98", b'x"', b"ab", b'\xa9"']
    return tokens


@pytest.fixture(scope="session")
def vocab() -> Vocabulary:
    return Vocabulary.from_tokens(tiny_tokens(), {0})


@pytest.fixture(scope="session")
def shared_bench() -> Path:
    """The folder of the grammar bench's data; tests that need it are skipped without."""
    root = os.environ.get("RAMET_SHARED") or Path(__file__).resolve().parents[3] / "shared"
    folder = Path(root) / "bench" / "grammars" / "data"
    if not folder.is_dir():
        pytest.skip("the grammar bench's data is not here")
    return folder


@pytest.fixture(scope="session")
def allowed_tokens():  # type: ignore[no-untyped-def]
    """The ids that a matcher's mask allows."""

    def find(matcher: Matcher, vocab: Vocabulary) -> set[int]:
        row = np.full(vocab.num_words, -1, np.int32)
        matcher.fill_mask(row)
        bits = np.unpackbits(row.view(np.uint8), bitorder="little")
        return set(np.flatnonzero(bits).tolist())

    return find

"""The kinds of a vocabulary's tokens."""

from __future__ import annotations

import enum
from collections.abc import Sequence

import numpy as np


class TokenKind(enum.IntEnum):
    """By the numbers of GGUF's ``tokenizer.ggml.token_type``."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    """Structure, not text: never made from a user's text, left out of the output's text."""
    USER_DEFINED = 4
    """Text that is always one token, such as ``<think>`` in some vocabularies."""
    UNUSED = 5
    BYTE = 6


def ids_by_kind(kinds: Sequence[TokenKind]) -> dict[TokenKind, list[int]]:
    """The ids of each kind, in order, given every id's kind."""
    numbers = np.fromiter(kinds, np.int64, len(kinds))
    return {kind: np.flatnonzero(numbers == kind).tolist() for kind in TokenKind}

"""What a token of a vocabulary is."""

from __future__ import annotations

import enum


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

"""What a grammar forces, as tokens.

Text that a grammar leaves no choice about needs no sampling, and its tokens can go through the
model together. They are the tokens that the tokenizer itself would make of the text, so that the
model goes on from what it has seen in training. The text's end is left to be sampled: there a
token may join what is forced with what is not, such as ``":"`` with a string's opening quote.
"""

from __future__ import annotations

import unicodedata
from collections import OrderedDict
from typing import Protocol

from ramet.runtime.errors import InvalidParameterError

_CACHE_SIZE = 4096


class ByteEncoder(Protocol):
    """What this module asks of a tokenizer."""

    def encode_bytes(self, data: bytes) -> list[int]: ...

    def token_bytes(self, token_id: int) -> bytes: ...


class ForcedTokens:
    """Encodes forced text; remembers the texts, which come back with every use of a grammar."""

    def __init__(self, encoder: ByteEncoder) -> None:
        self._encoder = encoder
        self._cache: OrderedDict[bytes, tuple[list[int], int]] = OrderedDict()

    def encode(self, text: bytes) -> tuple[list[int], int]:
        """The tokens of ``text``, and how many of them stand whatever follows."""
        found = self._cache.get(text)
        if found is None:
            found = self._cache[text] = self._encode(text)
            if len(self._cache) > _CACHE_SIZE:
                self._cache.popitem(last=False)
        return found

    def _encode(self, text: bytes) -> tuple[list[int], int]:
        try:
            tokens = self._encoder.encode_bytes(text)
        except InvalidParameterError:
            return [], 0
        certain = settled_len(text)
        length = num_certain = 0
        for token_id in tokens:
            length += len(self._encoder.token_bytes(token_id))
            if length > certain:
                break
            num_certain += 1
        return tokens, num_certain


def settled_len(text: bytes) -> int:
    """How many leading bytes no tokenizer of the byte-level family joins with what follows.

    Those tokenizers cut text into runs of letters, digits, white space and others before they
    merge, and a run may take one character before it along. So all but the last run, and the
    character before that, is settled. An incomplete character at the end counts to the last run.
    """
    chars = text.decode("utf-8", "ignore")
    if not chars:
        return 0
    index = len(chars) - 1
    last = _kind(chars[index])
    while index > 0 and _kind(chars[index - 1]) == last:
        index -= 1
    return len(chars[: max(index - 1, 0)].encode())


def _kind(char: str) -> str:
    category = unicodedata.category(char)
    if char.isspace():
        return "space"
    return category[0] if category[0] in "LN" else "other"

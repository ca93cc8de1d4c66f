"""Jump-forward: text that a grammar forces, as tokens.

Text that a grammar leaves no choice about needs no sampling, and the model can read its tokens in
one step. They are the tokens into which the tokenizer itself splits the text, as in training. The
end of the text is left to be sampled: there a token may span forced and free text, such as ``":"``
with a string's opening quote.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.scheduler.sequence.sequence import Matcher
from ramet.runtime.scheduler.sequence.token_bans import Row
from ramet.runtime.tokenizer.tokenizer import Tokenizer

_CACHE_SIZE = 1 << 19
"""Bytes of cached texts, each text counted as 64 bytes more."""


class JumpForward:
    """Encodes forced text, and caches the results, which recur with every use of a grammar.

    Args:
        tokenizer: the model's.
        texts: every token's bytes, one for each bit of a mask.
    """

    def __init__(self, tokenizer: Tokenizer, texts: Sequence[bytes]) -> None:
        # Here, not above: the server's process imports the scheduler, and compiles nothing.
        from ramet.kernels.sampling.cpu_mask import agrees_on_first_byte

        self._agrees_on_first_byte = agrees_on_first_byte
        self._tokenizer = tokenizer
        self._cache: OrderedDict[tuple[bytes, bytes], tuple[list[int], int]] = OrderedDict()
        self._cache_size = 0
        self._others = _others_by_first_byte(texts)
        self._first_bytes = np.zeros(32 * self._others.shape[1], np.uint8)
        self._first_bytes[: len(texts)] = [text[0] if text else 0 for text in texts]

    def text(self, matcher: Matcher, mask: Row) -> bytes:
        """The text that must follow the matcher's position.

        ``mask`` is the matcher's current one: mostly it is enough to see that nothing is forced.
        """
        if not self._agrees_on_first_byte(mask, self._first_bytes, self._others):
            return b""
        return matcher.forced_bytes()

    def encode(self, before: bytes, text: bytes) -> tuple[list[int], int]:
        """The tokens of ``before + text``, and how many of them no following text can change.

        ``before`` is the token that was drawn last; it counts as settled.
        """
        key = before, text
        found = self._cache.get(key)
        if found is None:
            found = self._cache[key] = self._encode(before, text)
            self._cache_size += _size(key)
            while self._cache_size > _CACHE_SIZE:
                oldest, _ = self._cache.popitem(last=False)
                self._cache_size -= _size(oldest)
        return found

    def _encode(self, before: bytes, text: bytes) -> tuple[list[int], int]:
        try:
            tokens = self._tokenizer.encode_bytes(before + text)
        except InvalidParameterError:
            return [], 0
        certain = self._tokenizer.settled_len(before + text)
        length = num_certain = 0
        for token_id in tokens:
            length += len(self._tokenizer.token_bytes(token_id))
            if length > certain:
                break
            num_certain += 1
        return tokens, num_certain


def _size(key: tuple[bytes, bytes]) -> int:
    return 64 + len(key[0]) + len(key[1])


def _others_by_first_byte(texts: Sequence[bytes]) -> npt.NDArray[np.int32]:
    """int32[256, W]: for each byte a mask of the tokens that do not begin with it."""
    bits = np.ones((256, -(-len(texts) // 32) * 32), np.bool_)
    for token_id, text in enumerate(texts):
        if text:
            bits[text[0], token_id] = False
    return np.packbits(bits, axis=1, bitorder="little").view("<i4").astype(np.int32, copy=False)

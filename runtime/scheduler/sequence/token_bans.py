"""Token bans: which tokens parameters forbid next, as packed bitmask rows.

Bit i of word j of a row stands for token ``32 * j + i``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from ramet.runtime.api.params import SamplingParams

Row = npt.NDArray[np.int32]

_MAX_ROWS = 256
"""Most masks that a request's bad words keep; few words need more than a handful."""


def pack(token_ids: Iterable[int], vocab_size: int) -> Row:
    """A mask row with the bits of these tokens set."""
    bits = np.zeros(-(-vocab_size // 32) * 32, np.bool_)
    bits[np.fromiter(token_ids, np.int64)] = True
    return np.packbits(bits, bitorder="little").view("<i4").astype(np.int32, copy=False)


class TokenTexts:
    """Every token's bytes, with look-ups by prefix and by content; ``max_len`` is the longest's."""

    def __init__(self, texts: Sequence[bytes | None], vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self._texts = [text or b"" for text in texts]
        self._sorted: list[tuple[bytes, int]] = []
        self._joined = b"".join(self._texts)
        self._ends = list(accumulate(map(len, self._texts)))
        self.max_len = max(map(len, self._texts), default=0)

    def starting_with(self, prefix: bytes) -> list[int]:
        """Tokens whose bytes begin with ``prefix``."""
        if not self._sorted:
            self._sorted = sorted((text, i) for i, text in enumerate(self._texts) if text)
        start = bisect_left(self._sorted, (prefix, -1))
        found: list[int] = []
        for text, token_id in self._sorted[start:]:
            if not text.startswith(prefix):
                break
            found.append(token_id)
        return found

    def containing(self, part: bytes) -> list[int]:
        """Tokens whose bytes contain ``part``."""
        found: list[int] = []
        start = self._joined.find(part)
        while start >= 0:
            token_id = bisect_right(self._ends, start)
            end = self._ends[token_id]
            if start + len(part) <= end:
                found.append(token_id)
                start = self._joined.find(part, end)
            else:  # it reaches into the next token
                start = self._joined.find(part, start + 1)
        return found


class BadWords:
    """Forbids every token that would complete one of some strings in the output's bytes.

    A token may complete a word that it contains, or one whose head the output ends in. So no
    tokenisation of a word gets through.
    """

    def __init__(self, words: Iterable[str], texts: TokenTexts) -> None:
        self._words = [word.encode() for word in words]
        self._texts = texts
        self._tail_len = max((len(word) for word in self._words), default=1) - 1
        self._tail = b""
        whole = {i for word in self._words for i in texts.containing(word)}
        self._whole = pack(whole, texts.vocab_size)
        self._by_rests: dict[frozenset[bytes], Row] = {}

    def feed(self, text: bytes) -> None:
        """Reads a generated token's bytes."""
        if self._tail_len:
            self._tail = (self._tail + text)[-self._tail_len :]

    def banned(self) -> Row:
        """The tokens that may not come next, as a row of set bits."""
        rests = frozenset(
            word[size:]
            for word in self._words
            for size in self._open_sizes(word)
            if self._tail.endswith(word[:size])
        )
        if not rests:
            return self._whole
        row = self._by_rests.get(rests)
        if row is None:
            if len(self._by_rests) >= _MAX_ROWS:
                self._by_rests.clear()
            banned = {i for rest in rests for i in self._texts.starting_with(rest)}
            row = self._by_rests[rests] = self._whole | pack(banned, self._texts.vocab_size)
        return row

    def _open_sizes(self, word: bytes) -> range:
        """Lengths of the word's heads that the output may end in and one token may complete."""
        least = max(1, len(word) - self._texts.max_len)
        return range(least, min(len(word) - 1, len(self._tail)) + 1)


class TokenBans:
    """Tokens that a request's parameters ban, apart from its grammar.

    End-of-text and stop tokens are banned before ``min_tokens``.
    """

    def __init__(self, params: SamplingParams, eos_ids: Iterable[int], texts: TokenTexts) -> None:
        size = texts.vocab_size
        self.min_tokens = params.min_tokens
        self._allowed: Row | None = None
        if params.allowed_token_ids is not None:
            self._allowed = pack(params.allowed_token_ids, size)
        self._not_yet: Row | None = None
        if params.min_tokens:
            self._not_yet = ~pack({*eos_ids, *params.stop_token_ids}, size)
        self.bad_words = BadWords(params.bad_words, texts) if params.bad_words else None

    @property
    def bans_always(self) -> bool:
        """Whether tokens are banned in addition to the grammar's restrictions."""
        return self._allowed is not None or self.bad_words is not None

    def active(self, num_output: int) -> bool:
        """Whether the next token, after ``num_output``, is restricted at all."""
        early = self._not_yet is not None and num_output < self.min_tokens
        return early or self._allowed is not None or self.bad_words is not None

    def apply(self, row: Row, num_output: int) -> None:
        """Clears the bits of the tokens that may not come after ``num_output`` tokens."""
        if self._allowed is not None:
            row &= self._allowed
        if self._not_yet is not None and num_output < self.min_tokens:
            row &= self._not_yet
        if self.bad_words is not None:
            row &= ~self.bad_words.banned()

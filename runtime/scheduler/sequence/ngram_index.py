"""N-gram index: earlier occurrences of the last 2 or 4 tokens, and what followed them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

MATCH_LEN = 16
"""Match lengths are counted up to this."""

_SHIFT = 32
_MIX = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_GENERATION = 8192
_GENERATION_TOKENS = 65536
_MAX_INDEXED = 8192

Match = tuple[list[int], int]
"""A token list, and the index in it of the token that followed the n-gram."""


class NgramIndex:
    """Indexes a sequence's tokens as they grow, of its prompt at most the last 8,192.

    Keys may collide: a match is compared token by token before it is used.

    Attributes:
        ids: the tokens.
        written: the appended tokens and the few before them; matches of other sequences refer to
            this list alone, so it outlives the rest.
        four: the key of the last four tokens.
    """

    def __init__(self, prompt: npt.NDArray[np.int32]) -> None:
        tail = prompt[-_MAX_INDEXED:]
        self.ids: list[int] = tail.tolist()
        self.written = self.ids[-MATCH_LEN:]
        self._pairs: dict[int, int] = {}
        self._fours: dict[int, int] = {}
        self.four = self._pair = -1
        if len(tail) < 4:
            ids, self.ids, self.written = self.ids, [], []
            for token_id in ids:
                self.append(token_id)
            return
        ends = tail.astype(np.uint64)
        pairs = ends[:-1] << np.uint64(_SHIFT) | ends[1:]
        fours = pairs[:-2] * np.uint64(_MIX) + pairs[2:]
        keys: list[int] = pairs.tolist()
        self._pairs = dict(zip(keys[:-1], range(2, len(tail)), strict=True))
        self._fours = dict(zip(fours[:-1].tolist(), range(4, len(tail)), strict=True))
        self._pair, self.four = keys[-1], int(fours[-1])

    def append(self, token_id: int) -> None:
        """Adds a token as the successor of the n-grams that end before it."""
        ids = self.ids
        size = len(ids)
        if size >= 4:
            self._fours[self.four] = size
        if size >= 2:
            self._pairs[self._pair] = size
        ids.append(token_id)
        self.written.append(token_id)
        if not size:
            return
        pair = ids[-2] << _SHIFT | token_id
        if size >= 3:
            before = ids[-4] << _SHIFT | ids[-3]
            self.four = (before * _MIX + pair) & _MASK
        self._pair = pair

    def find(self) -> Match | None:
        """The latest earlier occurrence of the last n-gram."""
        found = self._fours.get(self.four) or self._pairs.get(self._pair)
        return None if found is None else (self.ids, found)


class SharedNgramIndex:
    """Indexes the recent output of a namespace's sequences by 4-grams, in two generations.

    A token list is kept for as long as one entry refers to it. Where lists differ in few tokens,
    few entries may keep many lists, so the numbers of entries and of tokens are both bounded.
    """

    def __init__(self) -> None:
        self._num_tokens = 0
        self._new: dict[int, Match] = {}
        self._old: dict[int, Match] = {}

    def append(self, index: NgramIndex) -> None:
        """Indexes the 4-gram at a sequence's end, before the sequence gets its next token."""
        size = len(index.written)
        if size < 4:
            return
        self._new[index.four] = index.written, size
        self._num_tokens += 1
        if len(self._new) >= _GENERATION or self._num_tokens >= _GENERATION_TOKENS:
            self._old, self._new = self._new, {}
            self._num_tokens = 0

    def find(self, index: NgramIndex) -> Match | None:
        """The latest occurrence of a sequence's last 4-gram."""
        return self._new.get(index.four) or self._old.get(index.four)


def match_len(ids: list[int], match: Match) -> int:
    """How many tokens before the match equal those that ``ids`` ends with, up to 16."""
    other, end = match
    limit = min(len(ids), end, MATCH_LEN)
    for length in range(limit):
        if other[end - 1 - length] != ids[-1 - length]:
            return length
    return limit

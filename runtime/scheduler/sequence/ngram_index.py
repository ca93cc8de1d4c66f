"""Where a run of tokens stood before: pairs and fours of tokens, and what came after them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

MATCH_LEN = 16
"""Longer matches are as good as this."""

_SHIFT = 32
_MIX = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_GENERATION = 8192
_GENERATION_TOKENS = 65536
_MAX_INDEXED = 8192

Place = tuple[list[int], int]
"""A text, and the index in it of the token that came after what was looked for."""


class Text:
    """A sequence's tokens, at most the last 8,192 of its prompt, as they grow.

    Two runs of tokens with one key are told apart when they are compared, so keys may collide.

    Attributes:
        ids: the tokens.
        written: what has been appended, and the few tokens before it: what others may follow, and
            keep when the rest is gone.
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
        """Adds a token; it is from now on what follows the runs that end before it."""
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

    def find(self) -> Place | None:
        """The last earlier place that ends as the text does now."""
        found = self._fours.get(self.four) or self._pairs.get(self._pair)
        return None if found is None else (self.ids, found)


class SharedTexts:
    """What a namespace's sequences have written lately, for each other, by fours of tokens.

    A text is kept as long as one place in it is known. Where texts differ in a few places only,
    few places may keep many texts, so both are bounded.
    """

    def __init__(self) -> None:
        self._num_tokens = 0
        self._new: dict[int, Place] = {}
        self._old: dict[int, Place] = {}

    def append(self, text: Text) -> None:
        """Is told of each token that a text is about to get: what ends there will be found."""
        size = len(text.written)
        if size < 4:
            return
        self._new[text.four] = text.written, size
        self._num_tokens += 1
        if len(self._new) >= _GENERATION or self._num_tokens >= _GENERATION_TOKENS:
            self._old, self._new = self._new, {}
            self._num_tokens = 0

    def find(self, text: Text) -> Place | None:
        """Where a text last ended as this one does now."""
        return self._new.get(text.four) or self._old.get(text.four)


def match_len(ids: list[int], place: Place) -> int:
    """How many tokens before the place are those that ``ids`` ends with, up to 16."""
    other, end = place
    limit = min(len(ids), end, MATCH_LEN)
    for length in range(limit):
        if other[end - 1 - length] != ids[-1 - length]:
            return length
    return limit

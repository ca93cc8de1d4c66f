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
_MAX_INDEXED = 8192

Place = tuple[list[int], int]
"""A text, and the index in it of the token that came after what was looked for."""


class Text:
    """A sequence's tokens, at most the last 8,192 of its prompt, as they grow.

    Two runs of tokens with one key are told apart when they are compared, so keys may collide.
    """

    def __init__(self, prompt: npt.NDArray[np.int32]) -> None:
        tail = prompt[-_MAX_INDEXED:]
        self.ids: list[int] = tail.tolist()
        self._pairs: dict[int, int] = {}
        self._fours: dict[int, int] = {}
        self.pair = self.four = self._pair_before = -1
        if len(tail) < 4:
            ids, self.ids = self.ids, []
            for token_id in ids:
                self.append(token_id)
            return
        ends = tail.astype(np.uint64)
        pairs = ends[:-1] << np.uint64(_SHIFT) | ends[1:]
        fours = pairs[:-2] * np.uint64(_MIX) + pairs[2:]
        keys: list[int] = pairs.tolist()
        self._pairs = dict(zip(keys[:-1], range(2, len(tail)), strict=True))
        self._fours = dict(zip(fours[:-1].tolist(), range(4, len(tail)), strict=True))
        self.pair, self._pair_before, self.four = keys[-1], keys[-2], int(fours[-1])

    def append(self, token_id: int) -> None:
        """Adds a token; it is from now on what follows the runs that end before it."""
        ids = self.ids
        size = len(ids)
        if size >= 4:
            self._fours[self.four] = size
        if size >= 2:
            self._pairs[self.pair] = size
        ids.append(token_id)
        if not size:
            return
        pair = ids[-2] << _SHIFT | token_id
        if size >= 3:
            before = ids[-4] << _SHIFT | ids[-3]
            self.four = (before * _MIX + pair) & _MASK
        self.pair = pair

    def find(self) -> Place | None:
        """The last earlier place that ends as the text does now."""
        found = self._fours.get(self.four) or self._pairs.get(self.pair)
        return None if found is None else (self.ids, found)


class SharedTexts:
    """Outputs of a namespace's sequences, the recent ones, for each other."""

    def __init__(self) -> None:
        self._new: tuple[dict[int, Place], dict[int, Place]] = ({}, {})
        self._old: tuple[dict[int, Place], dict[int, Place]] = ({}, {})

    def append(self, text: Text) -> None:
        """Is told of each token that a text is about to get: what ends there will be found."""
        size = len(text.ids)
        if size < 4:
            return
        pairs, fours = self._new
        place = text.ids, size
        pairs[text.pair] = place
        fours[text.four] = place
        if len(fours) >= _GENERATION:
            self._old, self._new = self._new, ({}, {})

    def find(self, text: Text) -> Place | None:
        """Where a text ended as this one does now."""
        new, old = self._new, self._old
        return (
            new[1].get(text.four)
            or old[1].get(text.four)
            or new[0].get(text.pair)
            or old[0].get(text.pair)
        )


def match_len(ids: list[int], place: Place) -> int:
    """How many tokens before the place are those that ``ids`` ends with, up to 16."""
    other, end = place
    limit = min(len(ids), end, MATCH_LEN)
    for length in range(limit):
        if other[end - 1 - length] != ids[-1 - length]:
            return length
    return limit

"""``Vocabulary``: a tokenizer's tokens as bytes, laid out for masks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .json_text import slice_tables
from .trie import build_trie, characters_inside, pack

Mask = NDArray[np.int32]
"""int32[ceil(vocab_size / 32)]: bit i of word j allows token 32 * j + i."""

_MAX_TOKEN_LEN = 60_000


@dataclass(frozen=True)
class Slice:
    """Tokens at a border inside a JSON string.

    Attributes:
        masks: int32[n + 1, num_words]: by k, the tokens that stay inside and begin at most k
            characters.
        closing: the trie of the tokens that close the string.
    """

    masks: Mask
    closing: NDArray[np.int32]


class Vocabulary:
    """The tokens of one tokenizer. Immutable; build it once and share it.

    Attributes:
        tokens: each id's bytes; None for one that never stands for text (special, unused, empty).
        eos_ids: the ids that end the output, sorted.
        special_ids: the texts of special tokens that a constraint may name, such as
            ``<tool_call>``, and their ids.
        trie: every token that stands for text (see ``trie.py``); equal tokens are there once.
        slices: by ``VALUE_SLICE`` and ``KEY_SLICE``, the tokens as seen from inside a string.
        aliases: pairs (id in the trie, another id with the same bytes).
    """

    def __init__(
        self,
        tokens: Sequence[bytes | None],
        eos_ids: Iterable[int],
        special_ids: Mapping[str, int] | None = None,
    ) -> None:
        self.eos_ids = tuple(sorted(set(eos_ids)))
        self.special_ids = dict(special_ids or {})
        named = {*self.eos_ids, *self.special_ids.values()}
        if named and not 0 <= min(named) <= max(named) < len(tokens):
            raise ValueError(f"an end or special token id is not in 0..{len(tokens) - 1}")
        self.tokens: list[bytes | None] = [t or None for t in tokens]
        for token_id in named:
            self.tokens[token_id] = None
        self.num_words = (len(self.tokens) + 31) // 32

        texts = [(t, i) for i, t in enumerate(self.tokens) if t is not None]
        texts.sort()
        aliases = []
        distinct: list[bytes] = []
        ids: list[int] = []
        last: bytes | None = None
        for text, token_id in texts:
            if text == last:
                aliases.append((ids[-1], token_id))
            else:
                distinct.append(text)
                ids.append(token_id)
                last = text
        if any(len(t) > _MAX_TOKEN_LEN for t in distinct):
            raise ValueError(f"a token is longer than {_MAX_TOKEN_LEN} bytes")
        self.aliases = np.array(aliases, np.int32).reshape(-1, 2)
        data, starts = pack(distinct)
        id_array = np.array(ids, np.int32)
        self.trie = build_trie(data, starts, id_array)
        self.max_token_len = int(self.trie[:, 3].max()) + 1 if len(self.trie) else 0

        self.slices = tuple(
            self._slice(distinct, id_array, characters_inside(data, starts, table))
            for table in slice_tables()
        )

    @classmethod
    def from_tokens(
        cls,
        tokens: Sequence[bytes | None],
        eos_ids: Iterable[int],
        special_ids: Mapping[str, int] | None = None,
    ) -> Vocabulary:
        """A vocabulary from each id's bytes; None stands for a token that is no text."""
        return cls(tokens, eos_ids, special_ids)

    @property
    def size(self) -> int:
        """The number of token ids."""
        return len(self.tokens)

    def empty_mask(self) -> Mask:
        """A mask that allows nothing."""
        return np.zeros(self.num_words, np.int32)

    def _slice(
        self, texts: list[bytes], ids: NDArray[np.int32], counts: NDArray[np.int32]
    ) -> Slice:
        longest = max(int(counts.max()), 0) if len(counts) else 0
        masks = np.zeros((longest + 1, self.num_words), np.uint32)
        inside = counts >= 0
        bits = np.uint32(1) << (ids[inside] & 31).astype(np.uint32)
        np.bitwise_or.at(masks, (counts[inside], ids[inside] >> 5), bits)
        np.bitwise_or.accumulate(masks, axis=0, out=masks)
        closing = np.flatnonzero(counts == -1)
        trie = build_trie(*pack([texts[i] for i in closing]), ids[closing])
        return Slice(masks.view(np.int32), trie)

"""``Vocabulary``: a tokenizer's tokens as bytes, laid out for masks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ramet.grammars.pushdown.json_text import slice_tables

from .slicer import DEPTHS, GROUPS
from .trie import (
    BYTE,
    DEPTH,
    build_trie,
    characters_inside,
    characters_of,
    leaves_of,
    locate,
    pack,
    root_table,
    roots_of,
)  # fmt: skip

Mask = NDArray[np.int32]
"""int32[ceil(vocab_size / 32)]: bit i of word j allows token 32 * j + i."""

_MAX_TOKEN_LEN = 60_000


@dataclass(frozen=True)
class Slice:
    """The tokens, classified for a border between two characters of a JSON string.

    Attributes:
        masks: int32[n + 1, num_words]: by k, the tokens that stay inside and begin at most k
            characters.
        closing: the trie of the tokens that close the string.
        roots: its roots, see ``trie.roots_of``.
        before_close: the most characters of a token before it closes the string, at most.
    """

    masks: Mask
    closing: NDArray[np.int32]
    roots: NDArray[np.int32]
    before_close: int


@dataclass(frozen=True)
class Group:
    """Tokens made of the characters of a group (see ``slicer.py``).

    Attributes:
        mask: int32[num_words].
        rest: the trie of all other tokens.
        roots: its roots.
    """

    mask: Mask
    rest: NDArray[np.int32]
    roots: NDArray[np.int32]
    _without: dict[frozenset[int], Mask]

    def mask_without(self, first_bytes: frozenset[int], vocab: Vocabulary) -> Mask:
        """The tokens but those that begin with some bytes. Not to be written to."""
        if not first_bytes:
            return self.mask
        known = self._without.get(first_bytes)
        if known is None:
            known = self.mask.copy()
            for byte in first_bytes:
                known &= ~vocab.first_byte_mask(byte)
            if len(self._without) < 64:
                self._without[first_bytes] = known
        return known


class Vocabulary:
    """The tokens of one tokenizer. Immutable; build it once and share it.

    Attributes:
        tokens: each id's bytes; None for one that never stands for text (special, unused, empty).
        eos_ids: the ids that end the output, sorted.
        special_ids: the texts of special tokens that a constraint may name, such as
            ``<tool_call>``, and their ids.
        trie: every token that stands for text (see ``trie.py``); equal tokens are there once.
        roots: its roots, see ``trie.roots_of``.
        slices: by ``VALUE_SLICE`` and ``KEY_SLICE``, the tokens as seen from inside a string.
        data, spans: the bytes of all tokens, and by id where they are: the first, and the one past
            the last (int64[size, 2]; equal for a token that is no text).
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
        first = dict(reversed(texts))
        distinct = sorted(first)
        if max(map(len, distinct), default=0) > _MAX_TOKEN_LEN:
            raise ValueError(f"a token is longer than {_MAX_TOKEN_LEN} bytes")
        aliases = [(first[t], i) for t, i in texts if first[t] != i]
        self.aliases = np.array(aliases, np.int32).reshape(-1, 2)
        data, starts = pack(distinct)
        id_array = np.fromiter(map(first.__getitem__, distinct), np.int32, len(distinct))
        self.trie = build_trie(data, starts[:-1], starts[1:], id_array)
        self.max_token_len = int(self.trie[:, 3].max()) + 1 if len(self.trie) else 0

        self._packed = data, starts, id_array
        self.data = data
        self.spans: NDArray[np.int64] = np.zeros((len(self.tokens), 2), np.int64)
        self.spans[id_array] = np.stack([starts[:-1], starts[1:]], axis=1)
        self.spans[self.aliases[:, 1]] = self.spans[self.aliases[:, 0]]
        self._leaves = leaves_of(self.trie, len(self.tokens))
        self._groups: dict[tuple[int, int], Group] = {}
        self._longest: dict[int, int] = {}
        self._ids: dict[bytes, int] = {}
        self._group_counts: dict[int, NDArray[np.int32]] = {}
        self.roots = roots_of(self.trie)
        self.slices = tuple(
            self._slice(id_array, characters_inside(data, starts, table))
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

    def id_of(self, text: bytes) -> int | None:
        """The first token of a text."""
        if not self._ids:
            self._ids = {t: i for i, t in reversed(list(enumerate(self.tokens))) if t is not None}
        return self._ids.get(text)

    def longest(self, index: int) -> int:
        """The most characters of a token of a group of ``slicer.GROUPS``."""
        known = self._longest.get(index)
        if known is None:
            known = self._longest[index] = int(self._characters_of(index).max(initial=0))
        return known

    def group(self, index: int, depth: int) -> Group:
        """The tokens of a group with at most ``depth`` characters; computed on first use."""
        known = self._groups.get((index, depth))
        if known is None:
            counts = self._characters_of(index)
            inside = (counts >= 0) & (counts <= depth)
            ids = self._packed[2]
            trie = self._trie_of(np.flatnonzero(~inside))
            known = self._groups[index, depth] = Group(
                self._mask_of(ids[inside]), trie, roots_of(trie), {}
            )
        return known

    def prepare_groups(self) -> None:
        """Computes all groups, so that no mask waits for one."""
        for index in range(len(GROUPS)):
            for depth in DEPTHS:
                self.group(index, min(depth, self.longest(index)))

    def _characters_of(self, index: int) -> NDArray[np.int32]:
        known = self._group_counts.get(index)
        if known is None:
            data, starts, _ = self._packed
            known = self._group_counts[index] = characters_of(data, starts, GROUPS[index])
        return known

    def _mask_of(self, ids: NDArray[np.int32]) -> Mask:
        mask = self.empty_mask()
        bits = np.uint32(1) << (ids & 31).astype(np.uint32)
        np.bitwise_or.at(mask.view(np.uint32), ids >> 5, bits)
        return mask

    def roots_with(self, first_bytes: frozenset[int]) -> NDArray[np.int32]:
        """The roots with some bytes."""
        if not first_bytes:
            return self.roots[:0]
        return self.roots[np.isin(self.roots[:, 0], list(first_bytes))]

    def locate(self, trie: NDArray[np.int32], ends: NDArray[np.int32]) -> None:
        """Rewrite nodes of another trie of these tokens, ``ends[:, 0]``, as nodes of ``trie``."""
        locate(trie, self.trie, self._leaves, ends)

    def root_table(self, ends: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
        """Nodes of the trie, each with a state, as a table of roots, and their prefixes.

        See ``survey.ROOT_BYTE``.
        """
        table, prefixes = root_table(self.trie, self.data, self.spans, ends)
        return table, prefixes

    def first_byte_mask(self, byte: int) -> Mask:
        """The tokens that begin with a byte."""
        _, begin, end = self.roots[self.roots[:, 0] == byte][:, :3].sum(0).tolist()
        ids = self.trie[begin:end, 2]
        return self._mask_of(ids[ids >= 0])

    @property
    def size(self) -> int:
        """The number of token ids."""
        return len(self.tokens)

    def empty_mask(self) -> Mask:
        """A mask that allows nothing."""
        return np.zeros(self.num_words, np.int32)

    def _trie_of(self, tokens: NDArray[np.intp]) -> NDArray[np.int32]:
        """The trie of some of the distinct tokens, in order."""
        data, starts, ids = self._packed
        trie: NDArray[np.int32] = build_trie(data, starts[tokens], starts[tokens + 1], ids[tokens])
        return trie

    def _slice(self, ids: NDArray[np.int32], counts: NDArray[np.int32]) -> Slice:
        inside = counts >= 0
        masks = self._cumulative(ids[inside], counts[inside])
        trie = self._trie_of(np.flatnonzero(counts == -1))
        quotes = trie[trie[:, BYTE] == 0x22, DEPTH]
        return Slice(masks, trie, roots_of(trie), int(quotes.max(initial=0)))

    def _cumulative(self, ids: NDArray[np.int32], counts: NDArray[np.int32]) -> Mask:
        """int32[n + 1, num_words]: by k, the ids whose count is at most k."""
        longest = int(counts.max()) if len(counts) else 0
        masks = np.zeros((longest + 1, self.num_words), np.uint32)
        bits = np.uint32(1) << (ids & 31).astype(np.uint32)
        np.bitwise_or.at(masks, (counts, ids >> 5), bits)
        np.bitwise_or.accumulate(masks, axis=0, out=masks)
        return masks.view(np.int32)

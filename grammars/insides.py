"""What stays inside one lexeme: the part of a mask that depends on nothing around it.

It is found once for a lexeme's state and the live labels, and kept, with the places in the token
trie where the lexeme ends: grammars that share a lexicon share it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .cover import DEPTHS, GROUPS, MAX_EXCEPTIONS, cover
from .lexicon import Lexicon
from .limits import CompileLimits
from .moves import DONE, NEED_EDGE, NEED_ROW, ROOM, SLICE
from .records import NO_FILTER
from .vocabulary import Mask, Vocabulary
from .walk import survey

_NUM_FOUND = 4096
_WIDE = 40
"""States that allow so many bytes are worth a search for a group of tokens."""

_NO_PREFIXES = np.zeros(1, np.uint8)


class Inside(NamedTuple):
    """The tokens that stay inside a lexeme, and where to walk on (see ``walk``).

    Attributes:
        mask: int32[num_words].
        trie, roots, prefixes: what is to be walked beside.
    """

    mask: Mask
    trie: NDArray[np.int32]
    roots: NDArray[np.int32]
    prefixes: NDArray[np.uint8]

    @property
    def num_bytes(self) -> int:
        """The memory that it takes, if its mask is its own."""
        return self.mask.nbytes + self.roots.nbytes + self.prefixes.nbytes + 200


class Insides:
    """What stays inside the lexemes of a lexicon. The caller holds the lexicon's lock.

    Args:
        max_bytes: how much memory is kept.
    """

    def __init__(self, lexicon: Lexicon, vocab: Vocabulary, max_bytes: int) -> None:
        self.lexicon = lexicon
        self.vocab = vocab
        self._max_bytes = max_bytes
        self.num_bytes = 0
        self.known: dict[tuple[int, int | bytes], Inside] = {}
        self._narrow: dict[int, bool] = {}
        self._sliced: dict[int, tuple[Inside | None, int]] = {}
        self._nothing = Inside(vocab.empty_mask(), vocab.trie, vocab.roots, _NO_PREFIXES)
        self._slices = [
            [Inside(mask, s.closing, s.roots, _NO_PREFIXES) for mask in s.masks]
            for s in vocab.slices
        ]
        self._path = np.zeros(vocab.max_token_len + 2, np.int32)
        self._asked = np.zeros(4, np.int64)
        self._found = np.zeros((_NUM_FOUND, 2), np.int32)

    def at(self, state: int, live: int, frames: NDArray[np.int64]) -> Inside:
        """What stays inside the lexeme. Where it depends on an object's own live labels it is
        kept only if it takes long to find."""
        sliced = self._sliced.get(state)
        if sliced is None:
            sliced = self._sliced[state] = self._slice_of(state)
        inside, label = sliced
        if inside is not None and (label < 0 or self.lexicon.is_live(live, label, frames)):
            if live < NO_FILTER:
                return inside
            return self._keep((state, live), self._ends(inside, state, live, frames))
        key: tuple[int, int | bytes] = state, live
        if live < NO_FILTER:
            if self._is_narrow(state):
                return self._nothing
            first = -2 - live
            key = state, frames[first + 1 : first + 1 + frames[first]].tobytes()
            known = self.known.get(key)
            if known is not None:
                return known
        return self._keep(key, self._by_group(state, live, frames))

    def _slice_of(self, state: int) -> tuple[Inside | None, int]:
        """What a slice of the vocabulary answers for a state, if a label is live (-1: always)."""
        self.lexicon.make_ready(state)
        room, label, slice_ = self.lexicon.states[state, ROOM : SLICE + 1].tolist()
        if room < 0:
            return None, -1
        masks = self._slices[slice_]
        return masks[min(room, len(masks) - 1)], label

    def _is_narrow(self, state: int) -> bool:
        """Whether a state allows so few bytes that its tokens are walked at once."""
        known = self._narrow.get(state)
        if known is None:
            row = self.lexicon.rows[state]
            known = self._narrow[state] = np.count_nonzero(row >= 0) < _WIDE
        return known

    def _keep(self, key: tuple[int, int | bytes], inside: Inside) -> Inside:
        self.known[key] = inside
        self.num_bytes += inside.num_bytes
        while self.num_bytes > self._max_bytes and len(self.known) > 1:
            # The oldest goes: lexemes that were left behind are asked for no more.
            self.num_bytes -= self.known.pop(next(iter(self.known))).num_bytes
        return inside

    def _by_group(self, state: int, live: int, frames: NDArray[np.int64]) -> Inside:
        """By the largest group of tokens that the lexeme provably allows, or by a full walk."""
        lexicon, vocab = self.lexicon, self.vocab
        if not self._is_narrow(state) and lexicon.states[state, ROOM] < 0:
            lives, offset = lexicon.words, live
            if live < NO_FILTER:
                lives, offset = frames.view(np.uint64), -2 - live
            exceptions = np.empty(MAX_EXCEPTIONS + 1, np.int32)
            for index in vocab.group_order:
                longest = vocab.longest(index)
                depth = cover(
                    lexicon.rows, lexicon.states, lexicon.words, lives, state, offset,
                    GROUPS[index], longest, min(DEPTHS[0], longest), exceptions,
                )  # fmt: skip
                if depth < 0:
                    continue
                if depth < longest:
                    depth = max(d for d in DEPTHS if d <= depth)
                group = vocab.group(index, depth)
                except_ = frozenset(exceptions[1 : exceptions[0] + 1].tolist())
                inside = Inside(
                    group.mask_without(except_, vocab), group.rest, group.roots, _NO_PREFIXES
                )
                others = vocab.roots[np.isin(vocab.roots[:, 0], list(except_))]
                return self._ends(inside, state, live, frames, others)
        return self._ends(self._nothing, state, live, frames)

    def _ends(
        self,
        inside: Inside,
        state: int,
        live: int,
        frames: NDArray[np.int64],
        others: NDArray[np.int32] | None = None,
    ) -> Inside:
        """``inside`` with all tokens that stay inside, and as roots where the lexeme ends.

        ``others`` are roots of the vocabulary's trie to look at as well.
        """
        vocab = self.vocab
        mask = inside.mask.copy()
        roots = [self._survey(inside.trie, inside.roots, state, live, frames, mask)]
        if others is not None and len(others):
            roots.append(self._survey(vocab.trie, others, state, live, frames, mask))
        if (mask == inside.mask).all():
            mask = inside.mask
        table, prefixes = vocab.root_table(np.concatenate(roots))
        return Inside(mask, vocab.trie, table, prefixes)

    def _survey(
        self,
        trie: NDArray[np.int32],
        roots: NDArray[np.int32],
        state: int,
        live: int,
        frames: NDArray[np.int64],
        mask: Mask,
    ) -> NDArray[np.int32]:
        """int32[n, 2]: nodes of the vocabulary's trie, each with the state before it."""
        lexicon, vocab, found, asked = self.lexicon, self.vocab, self._found, self._asked
        ends: list[NDArray[np.int32]] = []
        resume = 0
        while True:
            status = survey(
                trie, roots, resume, state, live, lexicon.words, frames, lexicon.rows,
                lexicon.states, mask, self._path, asked, found,
            )  # fmt: skip
            resume = 1
            if status == NEED_ROW:
                lexicon.fill(int(asked[0]))
            elif status == NEED_EDGE:
                lexicon.edge(int(asked[0]), int(asked[1]))
            else:
                ends.append(found[1 : found[0, 0] + 1].copy())
                found[0, 0] = 0
                if status == DONE:
                    break
        ends_ = np.concatenate(ends)
        if trie is not vocab.trie:
            vocab.locate(trie, ends_)
        return ends_


def new_insides(vocab: Vocabulary, limits: CompileLimits) -> Insides:
    """Nothing yet, over a new lexicon."""
    lexicon = Lexicon(limits.max_states, longest_token=vocab.max_token_len)
    return Insides(lexicon, vocab, limits.max_mask_bytes)

"""Context-independent masks: the tokens that stay inside one lexeme.

Each is computed once for a lexeme state and the live labels, and cached with the places in the
token trie where the lexeme ends. Grammars that share a state table share them.
"""

from __future__ import annotations

import time
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ramet.grammars.limits import CompileLimits
from ramet.grammars.pushdown.pointers import inside_table
from ramet.grammars.pushdown.stack_records import NO_FILTER
from ramet.grammars.pushdown.state_table import UNBOUNDED_ROOM, StateTable
from ramet.grammars.pushdown.tables import DONE, NEED_EDGE, NEED_ROW, REACH, ROOM, ROOM_LABEL, SLICE

from .slicer import DEPTHS, GROUPS, MAX_EXCEPTIONS, PLAIN, PRINTABLE, prove_slice
from .survey import num_bytes, survey
from .vocabulary import Mask, Vocabulary

_NUM_FOUND = 4096
_WIDE = 24
"""From this many allowed bytes on, a slice of the vocabulary is searched for."""

_CAPACITY, _SHARED_CAPACITY = 1024, 65_536
"""Preallocated rows of a state table, so that no mask waits for a reallocation."""

_LARGE = 5000
"""From this many trie nodes on, a larger slice is searched for, which leaves fewer nodes."""

_MANY_VISITS = 8
"""A state that is used more often than this gets a mask of its own."""

_NAME = -1 << 40
"""In a key, in place of the live labels of an object."""

_NO_PREFIXES = np.zeros(1, np.uint8)


class ContextIndependentMask(NamedTuple):
    """The tokens that stay inside a lexeme, and where the walk continues (see ``fill_mask``).

    Attributes:
        mask: int32[num_words].
        trie, roots, prefixes: the tokens that are left to walk.
        table: all of them, and the vocabulary's aliases, as ``fill_mask`` reads them.
        own: the state to walk from, if not the requested one.
    """

    mask: Mask
    trie: NDArray[np.int32]
    roots: NDArray[np.int32]
    prefixes: NDArray[np.uint8]
    table: NDArray[np.int64]
    own: int | None = None

    @property
    def num_bytes(self) -> int:
        """The memory it uses, if it doesn't share its mask."""
        return self.mask.nbytes + self.roots.nbytes + self.prefixes.nbytes + 500


class OutOfTime(Exception):
    """The deadline has passed; the next request continues the work."""


class ContextIndependentMasks:
    """Context-independent masks of a state table's states. The caller holds the table's lock.

    Args:
        max_bytes: bound on the memory of cached masks.

    Attributes:
        deadline: by ``time.monotonic()``, when ``at`` gives up with ``OutOfTime``.
    """

    def __init__(self, state_table: StateTable, vocab: Vocabulary, max_bytes: int) -> None:
        self.state_table = state_table
        self.vocab = vocab
        self._max_bytes = max_bytes
        self.num_bytes = 0
        self.deadline = inf
        self.known: dict[tuple[int, int | bytes], ContextIndependentMask] = {}
        self._visits: dict[int, int] = {}
        self._answers: dict[int, tuple[ContextIndependentMask | None, int, bool]] = {}
        self._bounded: dict[tuple[int, int], ContextIndependentMask] = {}
        self._nothing = self._inside(vocab.empty_mask(), vocab.trie, vocab.roots)
        self._slices = [
            [self._inside(mask, s.closing, s.roots) for mask in s.masks] for s in vocab.slices
        ]
        vocab.prepare_groups()
        self._exceptions = np.empty(MAX_EXCEPTIONS + 1, np.int32)
        self._no_frames = np.zeros(1, np.int64)
        self._path = np.zeros(vocab.max_token_len + 2, np.int32)
        self._asked = np.zeros(5, np.int64)
        self._found = np.zeros((_NUM_FOUND, 3), np.int32)

    def _inside(
        self,
        mask: Mask,
        trie: NDArray[np.int32],
        roots: NDArray[np.int32],
        prefixes: NDArray[np.uint8] = _NO_PREFIXES,
    ) -> ContextIndependentMask:
        table = inside_table(trie, roots, prefixes, mask, self.vocab.aliases)
        return ContextIndependentMask(mask, trie, roots, prefixes, table)

    def at(self, state: int, live: int, frames: NDArray[np.int64]) -> ContextIndependentMask:
        """The tokens that stay inside the lexeme, or the part of them that is found fastest.

        Computed and cached where that takes long or the state is likely to be needed again.
        """
        if state not in self._answers:
            self._answers[state] = self._answer(state)
        part = self._look_up(state, live, frames, computes=True)
        assert part is not None
        return part

    def find(
        self, state: int, live: int, frames: NDArray[np.int64]
    ) -> ContextIndependentMask | None:
        """Like ``at`` where nothing has to be computed; else None."""
        if state in self._answers:
            return self._look_up(state, live, frames, computes=False)
        return None

    def _look_up(
        self, state: int, live: int, frames: NDArray[np.int64], *, computes: bool
    ) -> ContextIndependentMask | None:
        part, labels, is_lasting = self._answers[state]
        state_table = self.state_table
        if part is not None and not state_table.are_live(live, labels, frames):
            if labels >= 0:
                return self._nothing
            part = None
        if part is None:
            key: tuple[int, int | bytes] = state, NO_FILTER
            reach = int(state_table.states[state, REACH])
            if live != NO_FILTER and reach >= 0:
                # Labels that aren't reachable from here make no difference.
                bits = state_table.bits_at(reach)
                live_here = bits & state_table.live_bits(live, frames)
                if live_here != bits:
                    key = state, live_here.to_bytes(8 * int(state_table.words[reach]), "little")
            if key[1] == NO_FILTER:
                live = NO_FILTER
            known = self.known.get(key)
            if known is not None or not computes:
                return known
            return self._keep(key, self._by_group(state, live, frames))
        if part.own is not None or (part is self._nothing and live < NO_FILTER):
            return part
        key = state, live
        if labels != -1:
            # In a name of any kind the labels make no difference but to where it ends.
            key, live = (state, _NAME), NO_FILTER
        known = self.known.get(key)
        if known is not None:
            return known
        visits = self._visits[state] = self._visits.get(state, 0) + 1
        if not is_lasting and visits <= _MANY_VISITS:
            return part
        return self._keep(key, self._ends(part, state, live, frames)) if computes else None

    def prepare(self, state: int) -> None:
        """Compute the likely masks of a new state."""
        part = self.at(state, NO_FILTER, self._no_frames)
        if part is self._answers[state][0] and part is not self._nothing:
            self._visits[state] = _MANY_VISITS
            self.at(state, NO_FILTER, self._no_frames)

    def _answer(self, state: int) -> tuple[ContextIndependentMask | None, int, bool]:
        """What can be walked from a state without a survey, the labels that must be live for that
        (see ``ROOM_LABEL``), and whether texts return to the state; None where such a walk would
        take too long."""
        state_table = self.state_table
        closes_as = state_table.closes_as.get(state)
        if closes_as is not None:
            bounded = self._in_bounds(state, closes_as)
            if bounded is not None:
                return bounded, int(state_table.states[state, ROOM_LABEL]), False
        state_table.make_ready(state)
        room, label, slice_ = state_table.states[state, ROOM : SLICE + 1].tolist()
        if room >= 0:
            masks = self._slices[slice_]
            return masks[min(room, len(masks) - 1)], label, label < 0 and room == UNBOUNDED_ROOM
        if num_bytes(state_table.rows, state) < _WIDE:
            return self._nothing, -1, False
        return None, -1, False

    def _in_bounds(self, state: int, closes_as: int) -> ContextIndependentMask | None:
        """The mask inside a string of bounded length; None where a token may exceed the bound.

        Tokens close it as they close a string of any length, and all such states share that part.
        """
        room, _, slice_ = self.state_table.states[state, ROOM : SLICE + 1].tolist()
        masks = self._slices[slice_]
        if room < self.vocab.slices[slice_].before_close:
            return None
        longest = min(room, len(masks) - 1)
        known = self._bounded.get((closes_as, longest))
        if known is None:
            key = closes_as, _NAME
            ends = self.known.get(key) or self._keep(
                key, self._ends(masks[-1], closes_as, NO_FILTER, self._no_frames)
            )
            mask = masks[longest].mask
            table = inside_table(ends.trie, ends.roots, ends.prefixes, mask, self.vocab.aliases)
            known = ContextIndependentMask(
                mask, ends.trie, ends.roots, ends.prefixes, table, closes_as
            )
            self._bounded[closes_as, longest] = known
        return known

    def _keep(
        self, key: tuple[int, int | bytes], part: ContextIndependentMask
    ) -> ContextIndependentMask:
        self.known[key] = part
        self.num_bytes += part.num_bytes
        while self.num_bytes > self._max_bytes and len(self.known) > 1:
            # First in, first out: masks of past lexemes are no longer needed.
            self.num_bytes -= self.known.pop(next(iter(self.known))).num_bytes
        return part

    def _by_group(self, state: int, live: int, frames: NDArray[np.int64]) -> ContextIndependentMask:
        """By the largest group of tokens that the lexeme provably allows, or by a full walk."""
        for index in range(len(GROUPS)):
            if index == PLAIN:
                continue  # A superset of the printable group that takes longer to prove.
            proved = self._proved(index, state, live, frames)
            if proved is None:
                continue
            if index == PRINTABLE and len(proved[0].trie) > _LARGE:
                proved = self._proved(PLAIN, state, live, frames) or proved
            return self._ends(proved[0], state, live, frames, proved[1])
        return self._ends(self._nothing, state, live, frames)

    def _proved(
        self, index: int, state: int, live: int, frames: NDArray[np.int64]
    ) -> tuple[ContextIndependentMask, NDArray[np.int32]] | None:
        """As many tokens of a group as are proved to stay inside, and the roots of its others."""
        state_table, vocab = self.state_table, self.vocab
        lives, offset = state_table.words, live
        if live < NO_FILTER:
            lives, offset = frames.view(np.uint64), -2 - live
        exceptions = self._exceptions
        longest = vocab.longest(index)
        depth = prove_slice(
            state_table.rows, state_table.states, state_table.words, lives, state, offset,
            GROUPS[index],
            longest, min(DEPTHS[0], longest), exceptions,
        )  # fmt: skip
        if depth < 0:
            return None
        if depth < longest:
            depth = max(d for d in DEPTHS if d <= depth)
        group = vocab.group(index, depth)
        except_ = frozenset(exceptions[1 : exceptions[0] + 1].tolist())
        part = self._inside(group.mask_without(except_, vocab), group.rest, group.roots)
        return part, vocab.roots_with(except_)

    def _ends(
        self,
        part: ContextIndependentMask,
        state: int,
        live: int,
        frames: NDArray[np.int64],
        others: NDArray[np.int32] | None = None,
    ) -> ContextIndependentMask:
        """``inside`` with all tokens that stay inside, and as roots where the lexeme ends.

        ``others`` are roots of the vocabulary's trie to look at as well.
        """
        vocab = self.vocab
        mask = part.mask.copy()
        self._asked[4] = 0
        ends = self._survey(part.trie, part.roots, state, live, frames, mask)
        if others is not None and len(others):
            more = self._survey(vocab.trie, others, state, live, frames, mask)
            ends = np.concatenate([ends, more])
        if not self._asked[4]:
            mask = part.mask
        table, prefixes = vocab.root_table(ends)
        return self._inside(mask, vocab.trie, table, prefixes)

    def _survey(
        self,
        trie: NDArray[np.int32],
        roots: NDArray[np.int32],
        state: int,
        live: int,
        frames: NDArray[np.int64],
        mask: Mask,
    ) -> NDArray[np.int32]:
        """int32[n, 3]: nodes of the vocabulary's trie, each with the state before it; see
        ``survey``."""
        state_table, vocab, found, asked = self.state_table, self.vocab, self._found, self._asked
        ends: list[NDArray[np.int32]] = []
        resume = 0
        while True:
            status = survey(
                trie, roots, resume, state, live, state_table.words, frames, state_table.rows,
                state_table.states, mask, self._path, asked, found,
            )  # fmt: skip
            resume = 1
            if time.monotonic() > self.deadline:
                raise OutOfTime
            if status == NEED_ROW:
                state_table.fill(int(asked[0]))
            elif status == NEED_EDGE:
                state_table.edge(int(asked[0]), int(asked[1]))
            else:
                ends.append(found[1 : found[0, 0] + 1].copy())
                found[0, 0] = 0
                if status == DONE:
                    break
        ends_ = ends[0] if len(ends) == 1 else np.concatenate(ends)
        if trie is not vocab.trie:
            vocab.locate(trie, ends_)
        return ends_


def new_context_independent_masks(
    vocab: Vocabulary, limits: CompileLimits, *, is_shared: bool = False
) -> ContextIndependentMasks:
    """Nothing yet, over a new state table; one that many grammars share has room set aside."""
    state_table = StateTable(
        limits.max_states, longest_token=vocab.max_token_len,
        capacity=_SHARED_CAPACITY if is_shared else _CAPACITY,
    )  # fmt: skip
    return ContextIndependentMasks(state_table, vocab, limits.max_mask_bytes)

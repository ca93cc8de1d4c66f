"""``Masks``: one machine's masks for one vocabulary.

A mask has two parts. Which tokens stay inside the current lexeme depends on the lexeme's state and
the live labels alone: that is found once, and kept (``Inside``), together with the places in the
token trie where the lexeme ends. What may follow there depends on all that is around, and is walked
each time, which takes little: few tokens go past the end of a lexeme.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .cover import DEPTHS, GROUPS, MAX_EXCEPTIONS, cover
from .machine import Machine
from .moves import (
    DONE,
    END_LABEL,
    IS_END,
    LIVE_AT,
    NEED_EDGE,
    NEED_ROW,
    ROOM,
)
from .records import NO_FILTER
from .trail import Trail
from .vocabulary import Mask, Vocabulary
from .walk import MANY_FOUND, UNDECIDED, survey, walk

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


class Masks:
    """Masks of a machine's positions. The caller holds the machine's lock.

    Args:
        max_bytes: how much memory is kept for what stays inside lexemes.
    """

    def __init__(self, machine: Machine, vocab: Vocabulary, max_bytes: int) -> None:
        self._machine = machine
        self._vocab = vocab
        self._max_bytes = max_bytes
        self.num_bytes = 0
        self._known: dict[tuple[int, int | bytes], Inside] = {}
        self._narrow: dict[int, bool] = {}
        nothing = vocab.empty_mask()
        self._nothing = Inside(nothing, vocab.trie, vocab.roots, _NO_PREFIXES)
        self._slices = [
            [Inside(mask, s.closing, s.roots, _NO_PREFIXES) for mask in s.masks]
            for s in vocab.slices
        ]
        self._path = np.zeros(vocab.max_token_len + 2, np.int32)
        self._asked = np.zeros(4, np.int64)
        self._found = np.zeros((_NUM_FOUND, 2), np.int32)
        self._work = np.zeros((6, vocab.max_token_len + 3), np.int64)
        self._uncertain = np.zeros(_NUM_FOUND, np.int32)

    def write(self, trail: Trail, row: Mask) -> None:
        """Write the mask of a trail's position; int32[num_words or more]."""
        machine, vocab = self._machine, self._vocab
        at = trail.at
        state, context, _, live = trail.positions[at, : LIVE_AT + 1].tolist()
        state = machine.masked_as.get(state, state)
        known = self._known.get((state, live))
        if known is None:
            known = self._inside(state, live, trail)
        mask, trie, roots, prefixes = known
        nodes: list[int] = []
        resume = 0
        while True:
            status = walk(
                trie, roots, prefixes, resume, state, trail.positions, at, mask, vocab.aliases,
                row, self._work, self._uncertain, trail.frames, trail.text, machine.rows,
                machine.states, machine.contexts, machine.transitions, machine.words,
                machine.pushes, machine.plans,
            )  # fmt: skip
            if status == DONE:
                break
            if status in (UNDECIDED, MANY_FOUND):
                nodes += self._uncertain[1 : self._uncertain[0] + 1].tolist()
                self._uncertain[0] = 0
                if status == UNDECIDED:
                    self._decide(trail, trie, nodes, row)
                    break
            else:
                machine.supply(status, trail, trail.positions[at + 1])
            resume = 1
        if (
            machine.contexts[context, IS_END] or machine.states[state, END_LABEL] >= 0
        ) and machine.is_accepting(trail):
            for token_id in vocab.eos_ids:
                row[token_id >> 5] |= bit(token_id)

    def _decide(self, trail: Trail, trie: NDArray[np.int32], nodes: list[int], row: Mask) -> None:
        """Try each token below some nodes with its text."""
        vocab, machine = self._vocab, self._machine
        for node in nodes:
            for token_id in trie[node : trie[node, 1], 2].tolist():
                if token_id >= 0 and machine.advance(trail, vocab.data, *vocab.span(token_id)):
                    row[token_id >> 5] |= bit(token_id)
        copy_aliases(row, vocab.aliases)

    # -- inside one lexeme ------------------------------------------------------------------

    def _inside(self, state: int, live: int, trail: Trail) -> Inside:
        """What stays inside the lexeme. Where it depends on an object's own live labels it is
        kept only if it takes long to find."""
        machine = self._machine
        machine.make_ready(state)
        _, _, _, room, label, slice_, _ = machine.states[state].tolist()
        if room >= 0 and label >= 0 and not machine.is_live(live, label, trail.frames):
            room = -1
        if room >= 0:
            masks = self._slices[slice_]
            inside = masks[min(room, len(masks) - 1)]
            if live < NO_FILTER:
                return inside
            return self._keep((state, live), self._ends(inside, state, live, trail))
        key: tuple[int, int | bytes] = state, live
        if live < NO_FILTER:
            if self._is_narrow(state):
                return self._nothing
            first = -2 - live
            key = state, trail.frames[first + 1 : first + 1 + trail.frames[first]].tobytes()
            known = self._known.get(key)
            if known is not None:
                return known
        return self._keep(key, self._by_group(state, live, trail))

    def _is_narrow(self, state: int) -> bool:
        """Whether a state allows so few bytes that its tokens are walked at once."""
        known = self._narrow.get(state)
        if known is None:
            row = self._machine.rows[state]
            known = self._narrow[state] = np.count_nonzero(row >= 0) < _WIDE
        return known

    def _keep(self, key: tuple[int, int | bytes], inside: Inside) -> Inside:
        self._known[key] = inside
        self.num_bytes += inside.num_bytes
        while self.num_bytes > self._max_bytes and len(self._known) > 1:
            # The oldest goes: lexemes that were left behind are asked for no more.
            self.num_bytes -= self._known.pop(next(iter(self._known))).num_bytes
        return inside

    def _by_group(self, state: int, live: int, trail: Trail) -> Inside:
        """By the largest group of tokens that the lexeme provably allows, or by a full walk."""
        machine, vocab = self._machine, self._vocab
        if not self._is_narrow(state) and machine.states[state, ROOM] < 0:
            lives, offset = machine.words, live
            if live < NO_FILTER:
                lives, offset = trail.frames.view(np.uint64), -2 - live
            exceptions = np.empty(MAX_EXCEPTIONS + 1, np.int32)
            for index in vocab.group_order:
                longest = vocab.longest(index)
                depth = cover(
                    machine.rows, machine.states, machine.words, lives, state, offset,
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
                return self._ends(inside, state, live, trail, others)
        return self._ends(self._nothing, state, live, trail)

    def _ends(
        self,
        inside: Inside,
        state: int,
        live: int,
        trail: Trail,
        others: NDArray[np.int32] | None = None,
    ) -> Inside:
        """``inside`` with all tokens that stay inside, and as roots where the lexeme ends.

        ``others`` are roots of the vocabulary's trie to look at as well.
        """
        vocab = self._vocab
        mask = inside.mask.copy()
        roots = [self._survey(inside.trie, inside.roots, state, live, trail, mask)]
        if others is not None and len(others):
            roots.append(self._survey(vocab.trie, others, state, live, trail, mask))
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
        trail: Trail,
        mask: Mask,
    ) -> NDArray[np.int32]:
        """int32[n, 2]: nodes of the vocabulary's trie, each with the state before it."""
        machine, vocab, found, asked = self._machine, self._vocab, self._found, self._asked
        ends: list[NDArray[np.int32]] = []
        resume = 0
        while True:
            status = survey(
                trie, roots, resume, state, live, machine.words, trail.frames, machine.rows,
                machine.states, mask, self._path, asked, found,
            )  # fmt: skip
            resume = 1
            if status == NEED_ROW:
                machine.fill(int(asked[0]))
            elif status == NEED_EDGE:
                machine.edge(int(asked[0]), int(asked[1]))
            else:
                ends.append(found[1 : found[0, 0] + 1].copy())
                found[0, 0] = 0
                if status == DONE:
                    break
        ends_ = np.concatenate(ends)
        if trie is not vocab.trie:
            vocab.locate(trie, ends_)
        return ends_


def bit(token_id: int) -> np.int32:
    """A token's bit in its word."""
    return np.uint32(1 << (token_id & 31)).astype(np.int32)


def copy_aliases(mask: Mask, aliases: NDArray[np.int32]) -> None:
    """Allow what has the same bytes as an allowed token."""
    if len(aliases):
        source, target = aliases[:, 0], aliases[:, 1]
        allowed = (mask[source >> 5] >> (source & 31)) & 1 != 0
        bits = (np.uint32(1) << (target[allowed] & 31).astype(np.uint32)).view(np.int32)
        np.bitwise_or.at(mask, target[allowed] >> 5, bits)

"""``Grammar``: a compiled constraint for one vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .automaton import Context
from .cover import DEPTHS, GROUPS, MAX_EXCEPTIONS, cover
from .limits import CompileLimits
from .machine import LIVE, PENDING, READY, ROOM, Machine
from .matcher import Matcher, Position
from .vocabulary import Mask, Vocabulary
from .walk import DONE, MANY_STACKS, NEED_EDGE, NEED_ROW, NEED_TRANSITION, UNDECIDED, walk

_NUM_UNCERTAIN = 4096
_WIDE = 40
"""States that allow so many bytes are worth a search for a group of tokens."""


@dataclass(frozen=True)
class MatchResult:
    """What ``Grammar.match`` found.

    Attributes:
        accepted: the whole text matches.
        offset: the first wrong byte, or the text's length if more must follow; None if accepted.
        expected: what may stand there, in words; "" if accepted.
    """

    accepted: bool
    offset: int | None = None
    expected: str = ""

    def __bool__(self) -> bool:
        return self.accepted


class Grammar:
    """An immutable, shareable compiled constraint. What it caches inside is invisible.

    Attributes:
        vocab: the vocabulary that its masks are for.
    """

    def __init__(
        self,
        start: Callable[[Machine], Context],
        vocab: Vocabulary,
        limits: CompileLimits,
        prototype: Machine | None = None,
    ) -> None:
        self.vocab = vocab
        self._limits = limits
        self._machine = Machine(limits, prototype, longest_token=vocab.max_token_len)
        context = self._machine.intern(start(self._machine))
        self._start = Position(*self._machine.first_place(context), 0)
        self._masks: dict[tuple[int, int], Mask] = {}
        self._max_masks = max(16, limits.max_mask_bytes // max(4, 4 * vocab.num_words))
        self._work = np.zeros((3, vocab.max_token_len + 3), np.int32)
        self._uncertain = np.zeros(_NUM_UNCERTAIN, np.int32)

    def matcher(self) -> Matcher:
        """A new sequence's position, at the beginning of the text."""
        return Matcher(self, self._machine, self._start)

    def match(self, text: str | bytes) -> MatchResult:
        """Whether the whole text matches; needs no model and no tokens."""
        data = text.encode() if isinstance(text, str) else text
        matcher = Matcher(self, self._machine, self._start)
        for at in range(len(data)):
            if not matcher.accept_bytes(data[at : at + 1]):
                return MatchResult(False, at, matcher.expected())
        if matcher.is_accepting:
            return MatchResult(True)
        return MatchResult(False, len(data), matcher.expected())

    def mask_at(self, position: Position, text: bytearray) -> Mask:
        """The mask at a position; ``text`` is all that was matched. Not to be written to."""
        state, place, _ = position
        key = self._machine.masked_as.get(state, state), place
        mask = self._masks.get(key)
        if mask is not None:
            return mask
        with self._machine.lock:
            mask, certain = self._compute(position, text)
            if certain:
                if len(self._masks) >= self._max_masks:
                    # The oldest goes: contexts that were left behind are asked for no more.
                    del self._masks[next(iter(self._masks))]
                self._masks[key] = mask
        return mask

    def _compute(self, position: Position, text: bytearray) -> tuple[Mask, bool]:
        """The mask, and whether it depends on state and context alone."""
        machine, vocab = self._machine, self.vocab
        state, place, begin = position
        state = machine.masked_as.get(state, state)
        if not machine.states[state, READY]:
            machine.fill(state)
        context, stack = machine.context_and_stack(place)
        _, _, _, room, label, slice_ = machine.states[state].tolist()
        if room >= 0 and label >= 0 and not machine.is_live(context, label):
            room = -1
        nodes: list[tuple[NDArray[np.int32], int]] = []
        if room >= 0:
            inside = vocab.slices[slice_]
            mask = inside.masks[min(room, len(inside.masks) - 1)].copy()
            self._walk(inside.closing, inside.roots, state, context, stack, mask, nodes)
        else:
            mask = self._by_group(state, context, stack, nodes)
        for trie, node in nodes:
            self._decide(trie, node, position, text, mask)
        if len(vocab.aliases):
            _copy_aliases(mask, vocab.aliases)
        if machine.is_accepting(state, place, text, begin):
            for token_id in vocab.eos_ids:
                mask[token_id >> 5] |= _bit(token_id)
        return mask, not nodes

    def _by_group(
        self, state: int, context: int, stack: int, nodes: list[tuple[NDArray[np.int32], int]]
    ) -> Mask:
        """The mask where no slice answers: by the largest group that does, or by a full walk."""
        machine, vocab = self._machine, self.vocab
        # A narrow state is walked as fast as groups are looked for.
        if np.count_nonzero(machine.rows[state] >= 0) >= _WIDE and machine.states[state, ROOM] < 0:
            live = int(machine.contexts[context, LIVE])
            exceptions = np.empty(MAX_EXCEPTIONS + 1, np.int32)
            for index in vocab.group_order:
                table = GROUPS[index]
                longest = vocab.longest(index)
                depth = cover(
                    machine.rows, machine.states, machine.words, state, live, table, longest,
                    min(DEPTHS[0], longest), exceptions,
                )  # fmt: skip
                if depth < 0:
                    continue
                if depth < longest:
                    depth = max(d for d in DEPTHS if d <= depth)
                group = vocab.group(index, depth)
                except_ = frozenset(exceptions[1 : exceptions[0] + 1].tolist())
                mask = group.mask_without(except_, vocab).copy()
                self._walk(group.rest, group.roots, state, context, stack, mask, nodes)
                if except_:
                    roots = vocab.roots[np.isin(vocab.roots[:, 0], list(except_))]
                    self._walk(vocab.trie, roots, state, context, stack, mask, nodes)
                return mask
        mask = vocab.empty_mask()
        self._walk(vocab.trie, vocab.roots, state, context, stack, mask, nodes)
        return mask

    def _walk(
        self,
        trie: NDArray[np.int32],
        roots: NDArray[np.int32],
        state: int,
        context: int,
        stack: int,
        mask: Mask,
        nodes: list[tuple[NDArray[np.int32], int]],
    ) -> None:
        """Set a position's bits of the tokens under some roots; collect undecided nodes."""
        machine, work, uncertain = self._machine, self._work, self._uncertain
        free, resume = machine.num_stacks, 0
        while True:
            status = walk(
                trie, roots, resume, state, context, stack, free, machine.rows, machine.states,
                machine.contexts, machine.transitions, machine.words, machine.pushes,
                machine.stacks, mask, work, uncertain,
            )  # fmt: skip
            if status == DONE:
                return
            resume = 1
            if status == NEED_TRANSITION:
                machine.transition(int(work[1, 0]), int(work[0, -1]))
            elif status == NEED_ROW:
                machine.fill(int(work[1, 0]))
            elif status == NEED_EDGE:
                machine.edge(int(work[1, 0]), int(work[0, -1]))
            elif status == MANY_STACKS:
                machine.reserve_stacks(len(machine.stacks))
            else:
                nodes.extend((trie, node) for node in uncertain[1 : uncertain[0] + 1].tolist())
                uncertain[0] = 0
                if status == UNDECIDED:
                    return

    def _decide(
        self, trie: NDArray[np.int32], node: int, position: Position, text: bytearray, mask: Mask
    ) -> None:
        """Try each token of a subtree with its text."""
        for token_id in trie[node : trie[node, 1], 2].tolist():
            if token_id >= 0:
                token = self.vocab.tokens[token_id]
                assert token is not None
                if self.advance(position, text, token) is not None:
                    mask[token_id >> 5] |= _bit(token_id)

    def advance(self, position: Position, text: bytearray, token: bytes) -> Position | None:
        """The position after ``token``; ``text`` is what comes before it and is left as it is."""
        machine = self._machine
        length = len(text)
        text += token
        try:
            state, place, begin = position
            for at in range(length, len(text)):
                moved = machine.step(state, place, text, begin, at)
                if moved is None:
                    return None
                state, place, begin = moved
            if state == PENDING:
                return None
            return Position(state, place, begin)
        finally:
            del text[length:]

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a Grammar is not pickled; keep the constraint and compile it again")


def _bit(token_id: int) -> np.int32:
    return np.uint32(1 << (token_id & 31)).astype(np.int32)


def _copy_aliases(mask: Mask, aliases: NDArray[np.int32]) -> None:
    source, target = aliases[:, 0], aliases[:, 1]
    allowed = (mask[source >> 5] >> (source & 31)) & 1 != 0
    bits = (np.uint32(1) << (target[allowed] & 31).astype(np.uint32)).view(np.int32)
    np.bitwise_or.at(mask, target[allowed] >> 5, bits)

"""``Masks``: one pushdown table's masks for one vocabulary.

A mask has two parts. The tokens that stay inside the current lexeme are computed once
(``context_independent.py``). Tokens past its end depend on the parser stack and are walked each
time (``fill.py``), which is fast, since they are few. Where they depend on the lexeme's text (items
that must differ) the walk requests what follows, once for each text.
"""

from __future__ import annotations

import time
from math import inf

import numpy as np
from numpy.typing import NDArray

from ramet.grammars.pushdown.parser_stack import ParserStack
from ramet.grammars.pushdown.pushdown_table import PushdownTable
from ramet.grammars.pushdown.tables import DONE, LIVE_AT, NEED_TEXT

from .context_independent import ContextIndependentMask, ContextIndependentMasks, OutOfTime
from .fill import WORK_SUPPLIED, fill_mask
from .survey import MANY_FOUND, MAY_END, UNCERTAIN
from .vocabulary import Mask

_NUM_UNCERTAIN = 4096

_SLICE_S, _PAUSE_S = 0.001, 0.0002
"""In the background: the time between two pauses, and the length of a pause."""


class Masks:
    """Masks of a pushdown table's positions.

    Attributes:
        num_tokens_tried: tokens that were decided one by one, since they depend on texts that a
            walk doesn't know.
    """

    def __init__(
        self, pushdown: PushdownTable, context_independent: ContextIndependentMasks
    ) -> None:
        self._pushdown = pushdown
        self._context_independent = context_independent
        self._vocab = context_independent.vocab
        self._work = np.zeros((self._vocab.max_token_len + 3, 6), np.int64)
        self.num_tokens_tried = 0
        self._uncertain = np.zeros(_NUM_UNCERTAIN, np.int32)
        self._end_tokens = [(token_id >> 5, bit(token_id)) for token_id in self._vocab.eos_ids]

    def fill_known(self, parser_stack: ParserStack, row: Mask) -> bool:
        """Fills a mask that needs nothing but cached parts, as most do; otherwise False.

        One lookup and one compiled walk: the cost of a mask in a step.
        """
        lock, context_independent = self._pushdown.lock, self._context_independent
        state_table, at = context_independent.state_table, parser_stack.at
        if not row.flags.c_contiguous or not lock.acquire(blocking=False):
            return False
        try:
            state, _, _, live = parser_stack.positions[at, : LIVE_AT + 1].tolist()
            with state_table.lock:
                state = state_table.masked_as.get(state, state)
                part = context_independent.known.get((state, live))
                if part is None:
                    part = context_independent.find(state, live, parser_stack.frames)
                    if part is None:
                        return False
                status = fill_mask(
                    part.table, 0, state if part.own is None else part.own,
                    parser_stack.positions, at, row, self._work, self._uncertain,
                    parser_stack.frames, parser_stack.text, self._pushdown.table,
                )  # fmt: skip
            if status == MAY_END:
                self._add_end_tokens(parser_stack, row)
                return True
            is_filled: bool = status == DONE
            return is_filled
        finally:
            lock.release()

    def fill(self, parser_stack: ParserStack, row: Mask, *, seconds: float = inf) -> bool:
        """Writes the mask of a parser stack's position; int32[num_words or more].

        False if it takes longer than ``seconds``; what was computed for it is kept.
        """
        if not row.flags.c_contiguous:
            whole = np.zeros(len(row), np.int32)
            is_filled = self.fill(parser_stack, whole, seconds=seconds)
            row[:] = whole
            return is_filled
        end = inf if seconds == inf else time.monotonic() + seconds
        lock = self._pushdown.lock
        if not lock.acquire(timeout=-1 if end == inf else max(seconds, 0)):
            return False
        try:
            with self._context_independent.state_table.lock:
                found = self._find_inside(parser_stack, end)
                if found is None:
                    return False
                status = self._walk(*found, parser_stack, row, 0)
            return self._continue(status, *found, parser_stack, row, end)
        finally:
            lock.release()

    def fill_in_background(self, parser_stack: ParserStack, row: Mask) -> None:
        """``fill`` for a background thread: releases the locks between its parts."""
        # The lock is released between a walk's parts, so their scratch must not be shared.
        masks = Masks(self._pushdown, self._context_independent)
        slice_s = _SLICE_S
        while True:
            with self._pushdown.lock, self._context_independent.state_table.lock:
                found = masks._find_inside(parser_stack, time.monotonic() + slice_s)
                if found is not None:
                    status = masks._walk(*found, parser_stack, row, 0)
                    break
            time.sleep(_PAUSE_S)
            slice_s *= 2  # It begins again, over more rows that are there.
        masks._continue(status, *found, parser_stack, row, inf, yields=True)

    def _find_inside(
        self, parser_stack: ParserStack, end: float
    ) -> tuple[ContextIndependentMask, int] | None:
        """The context-independent mask, and the state to walk from.

        None if finding it takes beyond ``end``. The caller holds both tables' locks.
        """
        context_independent = self._context_independent
        state_table = context_independent.state_table
        own, _, _, live = parser_stack.positions[parser_stack.at, : LIVE_AT + 1].tolist()
        # A state may turn out to be masked as another when its row is written.
        state_table.make_ready(own)
        state = state_table.masked_as.get(own, own)
        context_independent.deadline = end
        try:
            part = context_independent.at(state, live, parser_stack.frames)
        except OutOfTime:
            return None
        finally:
            context_independent.deadline = inf
        return part, state if part.own is None else part.own

    def _continue(
        self,
        status: int,
        part: ContextIndependentMask,
        state: int,
        parser_stack: ParserStack,
        row: Mask,
        end: float,
        *,
        yields: bool = False,
    ) -> bool:
        """Computes what a walk has requested and resumes it, until the mask is filled.

        False if that isn't done by ``end``.
        """
        pushdown, state_table = self._pushdown, self._context_independent.state_table
        nodes: list[int] = []
        slice_end = time.monotonic() + _SLICE_S if yields else inf
        while status not in (DONE, MAY_END):
            if status in (UNCERTAIN, MANY_FOUND):
                nodes += self._uncertain[1 : self._uncertain[0] + 1].tolist()
                self._uncertain[0] = 0
                if status == UNCERTAIN:
                    if not self._decide(parser_stack, part.trie, nodes, row, end):
                        return False
                    status = MAY_END
                    continue
            else:
                with pushdown.lock:
                    request = parser_stack.positions[parser_stack.at + 1]
                    given = pushdown.supply(status, parser_stack, request)
                if status == NEED_TEXT:
                    self._work[0, WORK_SUPPLIED] = given
            if yields or end != inf:
                now = time.monotonic()
                if now > end:
                    return False
                if yields and now > slice_end:
                    # A real pause: threads that wait for the interpreter or a lock get it.
                    time.sleep(_PAUSE_S)
                    slice_end = time.monotonic() + _SLICE_S
            with pushdown.lock, state_table.lock:
                status = self._walk(part, state, parser_stack, row, 1)
        if status == MAY_END:
            with pushdown.lock:
                self._add_end_tokens(parser_stack, row)
        return True

    def _walk(
        self,
        part: ContextIndependentMask,
        state: int,
        parser_stack: ParserStack,
        row: Mask,
        resume: int,
    ) -> int:
        """One call of ``fill_mask``; the caller holds both tables' locks."""
        status: int = fill_mask(
            part.table, resume, state, parser_stack.positions, parser_stack.at, row, self._work,
            self._uncertain, parser_stack.frames, parser_stack.text, self._pushdown.table,
        )  # fmt: skip
        return status

    def _add_end_tokens(self, parser_stack: ParserStack, row: Mask) -> None:
        """Allows the tokens that end a text, where it may end."""
        if self._pushdown.is_accepting(parser_stack):
            for word, allowed in self._end_tokens:
                row[word] |= allowed

    def _decide(
        self,
        parser_stack: ParserStack,
        trie: NDArray[np.int32],
        nodes: list[int],
        row: Mask,
        end: float,
    ) -> bool:
        """Tries each token below some nodes with its text; False if that isn't done by ``end``."""
        vocab, pushdown = self._vocab, self._pushdown
        for node in nodes:
            for token_id in trie[node : trie[node, 1], 2].tolist():
                if token_id < 0:
                    continue
                self.num_tokens_tried += 1
                with pushdown.lock:
                    is_allowed = pushdown.advance(parser_stack, vocab.data, vocab.spans, token_id)
                if is_allowed:
                    row[token_id >> 5] |= bit(token_id)
                if end != inf and time.monotonic() > end:
                    return False
        copy_aliases(row, vocab.aliases)
        return True


def bit(token_id: int) -> np.int32:
    """A token's bit in its word."""
    return np.uint32(1 << (token_id & 31)).astype(np.int32)


def copy_aliases(mask: Mask, aliases: NDArray[np.int32]) -> None:
    """Allows the tokens that have the same bytes as an allowed one."""
    if len(aliases):
        source, target = aliases[:, 0], aliases[:, 1]
        allowed = (mask[source >> 5] >> (source & 31)) & 1 != 0
        bits = (np.uint32(1) << (target[allowed] & 31).astype(np.uint32)).view(np.int32)
        np.bitwise_or.at(mask, target[allowed] >> 5, bits)

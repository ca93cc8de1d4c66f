"""``Masks``: one pushdown table's masks for one vocabulary.

A mask has two parts. Which tokens stay inside the current lexeme is found once
(``context_independent.py``). What may follow its end depends on all that is around, and is walked
each time, which takes little: few tokens go past the end of a lexeme. Where it depends on the
lexeme's text (items that must differ) the walk requests it, once for each text.
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
from .survey import MANY_FOUND, MAY_END, UNCERTAIN
from .vocabulary import Mask
from .walk import WORK_SUPPLIED, walk

_NUM_UNCERTAIN = 4096

_SLICE_S, _PAUSE_S = 0.001, 0.0002
"""In the background, how long a mask is worked on between pauses, and those."""


class Masks:
    """Masks of a pushdown table's positions.

    Attributes:
        num_tokens_tried: tokens that were decided one by one, since what follows them depends on
            texts that a walk doesn't know.
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

    def write(self, parser_stack: ParserStack, row: Mask, *, seconds: float = inf) -> bool:
        """Write the mask of a parser stack's position; int32[num_words or more].

        False if it takes longer than ``seconds``; what was worked out for it is kept.
        """
        if not row.flags.c_contiguous:
            whole = np.zeros(len(row), np.int32)
            is_written = self.write(parser_stack, whole, seconds=seconds)
            row[:] = whole
            return is_written
        lock = self._pushdown.lock
        if not lock.acquire(blocking=False):
            begin = time.monotonic()
            if not lock.acquire(timeout=-1 if seconds == inf else seconds):
                return False
            seconds -= time.monotonic() - begin
        try:
            return self._write(parser_stack, row, seconds)
        finally:
            lock.release()

    def write_in_background(self, parser_stack: ParserStack, row: Mask) -> None:
        """``write`` in a thread of its own: others of the grammar go on in between."""
        Masks(self._pushdown, self._context_independent)._write(parser_stack, row, inf, yields=True)

    def _write(
        self, parser_stack: ParserStack, row: Mask, seconds: float, *, yields: bool = False
    ) -> bool:
        """False if it isn't written in about ``seconds``; the clock is read once something is
        missing. With ``yields`` the caller doesn't hold the pushdown table's lock."""
        pushdown, context_independent = self._pushdown, self._context_independent
        state_table = context_independent.state_table
        at = parser_stack.at
        nodes: list[int] = []
        found = self._find_inside(parser_stack, seconds, yields=yields)
        if found is None:
            return False
        part, state, end = found
        resume = 0
        slice_end = time.monotonic() + _SLICE_S if yields else inf
        while True:
            with pushdown.lock, state_table.lock:
                status = walk(
                    part.table, resume, state, parser_stack.positions, at, row, self._work,
                    self._uncertain, parser_stack.frames, parser_stack.text, pushdown.table,
                )  # fmt: skip
            if status == DONE:
                return True
            if status == MAY_END:
                break
            if end == inf:
                end = time.monotonic() + seconds
            if status in (UNCERTAIN, MANY_FOUND):
                nodes += self._uncertain[1 : self._uncertain[0] + 1].tolist()
                self._uncertain[0] = 0
                if status == UNCERTAIN:
                    if not self._decide(parser_stack, part.trie, nodes, row, end):
                        return False
                    break
            else:
                with pushdown.lock:
                    given = pushdown.supply(status, parser_stack, parser_stack.positions[at + 1])
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
            resume = 1
        with pushdown.lock:
            if pushdown.is_accepting(parser_stack):
                for token_id in self._vocab.eos_ids:
                    row[token_id >> 5] |= bit(token_id)
        return True

    def _find_inside(
        self, parser_stack: ParserStack, seconds: float, *, yields: bool
    ) -> tuple[ContextIndependentMask, int, float] | None:
        """The context-independent mask, the state to walk from, and when time is up, if that is
        known; None if nothing is found in so many seconds."""
        pushdown, context_independent = self._pushdown, self._context_independent
        state_table = context_independent.state_table
        own, _, _, live = parser_stack.positions[parser_stack.at, : LIVE_AT + 1].tolist()
        slice_s = _SLICE_S if yields else seconds
        end = inf
        while True:
            with pushdown.lock, state_table.lock:
                state = state_table.masked_as.get(own, own)
                part = context_independent.known.get((state, live))
                if part is None and state == own:
                    # A state may turn out to be masked as another when its row is written.
                    state_table.make_ready(own)
                    state = state_table.masked_as.get(own, own)
                    if state != own:
                        part = context_independent.known.get((state, live))
                if part is None:
                    context_independent.deadline = time.monotonic() + slice_s
                    if not yields:
                        end = context_independent.deadline
                    try:
                        part = context_independent.at(state, live, parser_stack.frames)
                    except OutOfTime:
                        part = None
                    finally:
                        context_independent.deadline = inf
            if part is not None:
                return part, state if part.own is None else part.own, end
            if not yields:
                return None
            time.sleep(_PAUSE_S)
            slice_s *= 2  # It begins again, over more rows that are there.

    def _decide(
        self,
        parser_stack: ParserStack,
        trie: NDArray[np.int32],
        nodes: list[int],
        row: Mask,
        end: float,
    ) -> bool:
        """Try each token below some nodes with its text; False if that isn't done by ``end``."""
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
    """Allow what has the same bytes as an allowed token."""
    if len(aliases):
        source, target = aliases[:, 0], aliases[:, 1]
        allowed = (mask[source >> 5] >> (source & 31)) & 1 != 0
        bits = (np.uint32(1) << (target[allowed] & 31).astype(np.uint32)).view(np.int32)
        np.bitwise_or.at(mask, target[allowed] >> 5, bits)

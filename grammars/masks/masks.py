"""``Masks``: one machine's masks for one vocabulary.

A mask has two parts. Which tokens stay inside the current lexeme is found once (``insides.py``).
What may follow its end depends on all that is around, and is walked each time, which takes little:
few tokens go past the end of a lexeme. Where it depends on the lexeme's text (items that must
differ) the walk asks for it, once for each text.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ramet.grammars.pushdown.parser_stack import Trail
from ramet.grammars.pushdown.pushdown_table import Machine
from ramet.grammars.pushdown.transitions import DONE, LIVE_AT, NEED_TEXT

from .context_independent import Inside, Insides
from .vocabulary import Mask
from .walk import MANY_FOUND, MAY_END, UNCERTAIN, WORK_GIVEN, walk

_NUM_UNCERTAIN = 4096


class Masks:
    """Masks of a machine's positions.

    Attributes:
        num_tokens_tried: tokens that were decided one by one, since what follows them depends on
            texts that a walk doesn't know.
    """

    def __init__(self, machine: Machine, insides: Insides) -> None:
        self._machine = machine
        self._insides = insides
        self._vocab = insides.vocab
        self._work = np.zeros((self._vocab.max_token_len + 3, 6), np.int64)
        self.num_tokens_tried = 0
        self._uncertain = np.zeros(_NUM_UNCERTAIN, np.int32)

    def write(self, trail: Trail, row: Mask) -> None:
        """Write the mask of a trail's position; int32[num_words or more]."""
        if not row.flags.c_contiguous:
            whole = np.zeros(len(row), np.int32)
            self.write(trail, whole)
            row[:] = whole
            return
        with self._machine.lock:
            self._write(trail, row)

    def _write(self, trail: Trail, row: Mask) -> None:
        machine, insides = self._machine, self._insides
        lexicon = insides.lexicon
        at = trail.at
        state, _, _, live = trail.positions[at, : LIVE_AT + 1].tolist()
        nodes: list[int] = []
        inside: Inside | None = None
        resume = 0
        while True:
            with lexicon.lock:
                if inside is None:
                    state = lexicon.masked_as.get(state, state)
                    inside = insides.known.get((state, live)) or insides.at(
                        state, live, trail.frames
                    )
                    if inside.own is not None:
                        state = inside.own
                status = walk(
                    inside.table, resume, state, trail.positions, at, row, self._work,
                    self._uncertain, trail.frames, trail.text, machine.table,
                )  # fmt: skip
            if status == DONE:
                return
            if status == MAY_END:
                break
            if status in (UNCERTAIN, MANY_FOUND):
                nodes += self._uncertain[1 : self._uncertain[0] + 1].tolist()
                self._uncertain[0] = 0
                if status == UNCERTAIN:
                    self._decide(trail, inside.trie, nodes, row)
                    break
            else:
                given = machine.supply(status, trail, trail.positions[at + 1])
                if status == NEED_TEXT:
                    self._work[0, WORK_GIVEN] = given
            resume = 1
        if machine.is_accepting(trail):
            for token_id in self._vocab.eos_ids:
                row[token_id >> 5] |= bit(token_id)

    def _decide(self, trail: Trail, trie: NDArray[np.int32], nodes: list[int], row: Mask) -> None:
        """Try each token below some nodes with its text."""
        vocab, machine = self._vocab, self._machine
        for node in nodes:
            for token_id in trie[node : trie[node, 1], 2].tolist():
                if token_id < 0:
                    continue
                self.num_tokens_tried += 1
                if machine.advance(trail, vocab.data, vocab.spans, token_id):
                    row[token_id >> 5] |= bit(token_id)
        copy_aliases(row, vocab.aliases)


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

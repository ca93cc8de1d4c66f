"""Builds a step's batch: the plain arrays that the runner takes."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ramet.runtime.api.batch import Batch
from ramet.runtime.scheduler.batching.slots import Slots
from ramet.runtime.scheduler.sequence.sequence import Sequence

_NO_COPIES = np.empty((0, 3), np.int32)
_NO_TOKENS = np.empty(0, np.int32)


@dataclass(slots=True)
class Row:
    """``num_new`` tokens of one sequence, and which logits they owe.

    ``num_scores`` rows of logits score known prompt tokens. If ``draws``, the last rows draw the
    token after all known ones and those after each token of ``draft``; draft tokens count to
    ``num_new`` and are in the sequence's buffer behind its known tokens. The hidden states of the
    last ``num_hidden`` tokens are wanted.
    """

    sequence: Sequence
    num_new: int
    num_scores: int = 0
    draws: bool = False
    draft: tuple[int, ...] = ()
    num_hidden: int = 0

    @property
    def num_draws(self) -> int:
        return 1 + len(self.draft) if self.draws else 0

    @property
    def num_logits(self) -> int:
        return self.num_scores + self.num_draws

    def cut_draft(self, length: int) -> None:
        """Shortens the draft."""
        self.num_new -= len(self.draft) - length
        self.draft = self.draft[:length]


def _hidden_tokens(rows: Seq[Row], row_starts: Seq[int]) -> npt.NDArray[np.int32]:
    """The tokens whose hidden states are wanted: the last of each row that wants some."""
    wanted = [
        np.arange(end - row.num_hidden, end, dtype=np.int32)
        for row, end in zip(rows, row_starts[1:], strict=True)
        if row.num_hidden
    ]
    return np.concatenate(wanted) if wanted else _NO_TOKENS


class BatchBuilder:
    """Builds batches from rows."""

    def __init__(self, slots: Slots, page_size: int) -> None:
        self._page_size = page_size
        self._slots = slots

    def build(self, rows: Seq[Row], first_masks: Seq[int], masks: npt.NDArray[np.int32]) -> Batch:
        """Builds the batch of these rows, sorted already by page table.

        ``first_masks[i]`` is the index in ``masks`` of the mask of ``rows[i]``'s first draw, those
        of its other draws following; or -1.
        """
        tokens = _Tokens()
        draws_at = [tokens.add(row) for row in rows]
        mask_rows = [-1] * len(tokens.logit_tokens)
        for row, first, at in zip(rows, first_masks, draws_at, strict=True):
            if first >= 0:
                mask_rows[at : at + row.num_draws] = range(first, first + row.num_draws)
        sequences = [row.sequence for row in rows]
        max_pages = max(sequence.num_pages for sequence in sequences)
        page_tables, size = self._slots.page_tables, self._page_size
        copies = [
            (s.copy_from[0], int(page_tables[s.slot, s.tree_len // size]), s.copy_from[1])
            for s in sequences
            if s.copy_from is not None
        ]
        return Batch(
            token_ids=np.array(tokens.ids, np.int32),
            positions=np.array(tokens.positions, np.int32),
            row_starts=np.array(tokens.row_starts, np.int32),
            context_lens=np.array(
                [row.sequence.num_computed + row.num_new for row in rows], np.int32
            ),
            page_tables=page_tables[np.array([s.slot for s in sequences], np.intp), :max_pages],
            page_copies=np.array(copies, np.int32) if copies else _NO_COPIES,
            logit_tokens=np.array(tokens.logit_tokens, np.int32),
            sampling=self._slots.gather(
                tokens.logit_slots,
                [tokens.positions[at] + 1 for at in tokens.logit_tokens],
                tokens.targets,
                mask_rows,
                masks,
                any_scored=any(row.num_scores for row in rows),
            ),
            hidden_tokens=_hidden_tokens(rows, tokens.row_starts),
        )


class _Tokens:
    """The tokens of a batch's rows, and its logits, one after the other.

    Lists that become arrays in one go: for few rows, and between steps, when numpy's code has left
    the CPU's caches, a dozen small operations on arrays take longer.
    """

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.positions: list[int] = []
        self.row_starts = [0]
        self.logit_tokens: list[int] = []
        self.logit_slots: list[int] = []
        self.targets: list[int] = []  # -1: none

    def add(self, row: Row) -> int:
        """Adds a row; returns the index of the first logits that it draws from."""
        sequence = row.sequence
        first, until = sequence.num_computed, sequence.num_computed + row.num_new
        start = len(self.ids)
        self.ids += sequence.token_ids[first:until].tolist()
        self.positions += range(first, until)
        end = len(self.ids)
        self.row_starts.append(end)
        if row.num_scores:
            scored = start - first + sequence.num_scored - 1
            self.logit_tokens += range(scored, scored + row.num_scores)
            wanted = slice(sequence.num_scored, sequence.num_scored + row.num_scores)
            self.targets += sequence.token_ids[wanted].tolist()
        draws_at = len(self.logit_tokens)
        num_draws = row.num_draws
        self.logit_tokens += range(end - num_draws, end)
        self.targets += [-1] * num_draws
        self.logit_slots += [sequence.slot] * (row.num_scores + num_draws)
        return draws_at

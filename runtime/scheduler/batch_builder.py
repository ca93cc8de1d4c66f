"""Turns the rows that a step will compute into the plain arrays that runner and sampler take."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ramet.runtime.batch import Batch
from ramet.runtime.scheduler.sequence import Sequence
from ramet.runtime.scheduler.slots import Slots

_NO_COPIES = np.empty((0, 3), np.int32)


@dataclass(slots=True)
class Row:
    """``num_new`` tokens of one sequence, and which logits they owe.

    ``num_scores`` rows of logits say how likely known prompt tokens were; if ``draws``, the last
    row is for the token after all known ones.
    """

    sequence: Sequence
    num_new: int
    num_scores: int = 0
    draws: bool = False

    @property
    def num_logits(self) -> int:
        return self.num_scores + self.draws


class BatchBuilder:
    """Builds batches; owns the buffer that masks are written to."""

    def __init__(self, slots: Slots, page_size: int, max_logits: int, vocab_size: int) -> None:
        self._page_size = page_size
        self._slots = slots
        self._masks = np.empty((max_logits, -(-vocab_size // 32)), np.int32)

    @property
    def mask_buffer(self) -> npt.NDArray[np.int32]:
        """int32[max_logits, W]: row i is for the i-th masked row of the batch being built."""
        return self._masks

    def build(self, rows: Seq[Row], masked: Seq[int]) -> Batch:
        """Builds the batch of these rows, sorted already by page table.

        ``masked[i]`` is the mask row of ``rows[i]``'s draw, or -1.
        """
        num_rows = len(rows)
        sequences = [row.sequence for row in rows]
        counts = np.fromiter([row.num_new for row in rows], np.int32, num_rows)
        computed = np.fromiter([s.num_computed for s in sequences], np.int32, num_rows)
        slots = np.fromiter([s.slot for s in sequences], np.intp, num_rows)
        row_starts = np.zeros(num_rows + 1, np.int32)
        np.cumsum(counts, out=row_starts[1:])
        num_tokens = int(row_starts[-1])

        token_ids = np.empty(num_tokens, np.int32)
        start = 0
        for row, sequence in zip(rows, sequences, strict=True):
            first = sequence.num_computed
            if row.num_new == 1:
                token_ids[start] = sequence.token_ids[first]
            else:
                end = first + row.num_new
                token_ids[start : start + row.num_new] = sequence.token_ids[first:end]
            start += row.num_new
        positions = np.repeat(computed - row_starts[:-1], counts)
        positions += np.arange(num_tokens, dtype=np.int32)

        max_pages = max(sequence.num_pages for sequence in sequences)
        copies = [
            (
                s.copy_from[0],
                int(self._slots.page_tables[s.slot, s.tree_len // self._page_size]),
                s.copy_from[1],
            )
            for s in sequences
            if s.copy_from is not None
        ]
        logit_tokens, logit_rows, draws_at, targets = self._logits(rows, row_starts)
        masks = np.full(len(logit_tokens), -1, np.int32)
        num_masks = 0
        for i, mask_row in enumerate(masked):
            if mask_row >= 0:
                masks[draws_at[i]] = mask_row
                num_masks = max(num_masks, mask_row + 1)
        return Batch(
            token_ids=token_ids,
            positions=positions,
            row_starts=row_starts,
            context_lens=computed + counts,
            page_tables=self._slots.page_tables[slots, :max_pages],
            page_copies=np.array(copies, np.int32) if copies else _NO_COPIES,
            logit_tokens=logit_tokens,
            sampling=self._slots.gather(
                slots[logit_rows],
                positions[logit_tokens].astype(np.int64) + 1,
                targets,
                masks,
                self._masks[:num_masks],
            ),
        )

    @staticmethod
    def _logits(
        rows: Seq[Row], row_starts: npt.NDArray[np.int32]
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.intp], list[int], npt.NDArray[np.int32]]:
        """(token of each logit, row of each, each row's drawing logit or -1, targets or -1)."""
        ends = row_starts[1:].tolist()
        tokens: list[int] = []
        owners: list[int] = []
        targets: list[int] = []
        draws_at: list[int] = []
        for i, row in enumerate(rows):
            if row.num_scores:
                sequence = row.sequence
                first = ends[i] - row.num_new - sequence.num_computed + sequence.num_scored - 1
                tokens.extend(range(first, first + row.num_scores))
                owners.extend([i] * row.num_scores)
                scored = slice(sequence.num_scored, sequence.num_scored + row.num_scores)
                targets.extend(sequence.token_ids[scored].tolist())
            draws_at.append(len(tokens) if row.draws else -1)
            if row.draws:
                tokens.append(ends[i] - 1)
                owners.append(i)
                targets.append(-1)
        return (
            np.array(tokens, np.int32),
            np.array(owners, np.intp),
            draws_at,
            np.array(targets, np.int32),
        )

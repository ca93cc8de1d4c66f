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
_NO_TOKENS = np.empty(0, np.int32)


@dataclass(slots=True)
class Row:
    """``num_new`` tokens of one sequence, and which logits they owe.

    ``num_scores`` rows of logits say how likely known prompt tokens were; if ``draws``, the last
    rows are for the token after all known ones and for those after each token of ``draft``, a
    guess of what it will be, which counts to ``num_new`` and stands in the sequence's buffer
    behind its known tokens. The hidden states of the last ``num_hidden`` tokens are wanted.
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
        """Shortens the guess."""
        self.num_new -= len(self.draft) - length
        self.draft = self.draft[:length]


def _hidden_tokens(rows: Seq[Row], row_starts: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """The tokens whose hidden states are wanted: the last of each row that wants some."""
    wanted = [
        np.arange(end - row.num_hidden, end, dtype=np.int32)
        for row, end in zip(rows, row_starts[1:].tolist(), strict=True)
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
        mask_rows = np.full(len(logit_tokens), -1, np.int32)
        for row, first, at in zip(rows, first_masks, draws_at, strict=True):
            if first >= 0:
                mask_rows[at : at + row.num_draws] = range(first, first + row.num_draws)
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
                mask_rows,
                masks,
            ),
            hidden_tokens=_hidden_tokens(rows, row_starts),
        )

    @staticmethod
    def _logits(
        rows: Seq[Row], row_starts: npt.NDArray[np.int32]
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.intp], list[int], npt.NDArray[np.int32]]:
        """(token of each logit, row of each, where each row's draws begin, targets or -1)."""
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
            draws_at.append(len(tokens))
            if row.draft:
                tokens.extend(range(ends[i] - row.num_draws, ends[i]))
                owners.extend([i] * row.num_draws)
                targets.extend([-1] * row.num_draws)
            elif row.draws:
                tokens.append(ends[i] - 1)
                owners.append(i)
                targets.append(-1)
        return (
            np.array(tokens, np.int32),
            np.array(owners, np.intp),
            draws_at,
            np.array(targets, np.int32),
        )

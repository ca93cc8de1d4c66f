"""The masks of a step's draws: what grammar and parameters allow, position by position."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ramet.runtime.scheduler.batching.batch_builder import Row


class MaskWriter:
    """Reserves and fills rows of one buffer, int32[max_logits, ceil(vocab_size / 32)].

    A step's rows are reserved when it is built, and filled while the model computes.
    """

    def __init__(self, max_logits: int, vocab_size: int) -> None:
        self._buffer = np.empty((max_logits, -(-vocab_size // 32)), np.int32)
        self._num_used = 0

    @property
    def rows(self) -> npt.NDArray[np.int32]:
        """The masks reserved since ``clear``."""
        return self._buffer[: self._num_used]

    def clear(self) -> None:
        self._num_used = 0

    def reserve(self, row: Row) -> int:
        """Reserves masks for a row's draws; returns the first one's index, or -1 for none.

        A draft is cut at the first token that the grammar refuses, and dropped where a mask has
        been late: masks of drafts can't be computed in the background. If the matcher fails, no
        row is reserved.
        """
        sequence = row.sequence
        if not row.draws:
            return -1
        if sequence.matcher is None:
            if not sequence.bans.active(sequence.num_output):
                return -1
        elif row.draft:
            num_accepted = 0
            for token_id in () if sequence.num_late_masks else row.draft:
                if not sequence.matcher.accept(token_id):
                    break
                num_accepted += 1
            if num_accepted < len(row.draft):
                row.cut_draft(num_accepted)
            sequence.matcher.rollback(num_accepted)
        first = self._num_used
        self._num_used += row.num_draws
        return first

    def write(self, row: Row, first: int) -> None:
        """Fills a row's reserved masks."""
        sequence = row.sequence
        matcher, bans = sequence.matcher, sequence.bans
        for offset in range(row.num_draws):
            mask = self._buffer[first + offset]
            ready = sequence.ready_mask
            if matcher is None:
                mask.fill(-1)
            elif not offset and ready is not None and ready.num_output == sequence.num_output:
                mask[:] = ready.mask
            else:
                if offset:
                    matcher.accept(row.draft[offset - 1])
                matcher.fill_mask(mask)
            bans.apply(mask, sequence.num_output + offset)
        if matcher is not None and row.draft:
            matcher.rollback(len(row.draft))

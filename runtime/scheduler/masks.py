"""Writes the masks of a step's draws: what grammar and parameters allow, position by position."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ramet.runtime.scheduler.batch_builder import Row


class MaskWriter:
    """Fills rows of one buffer, int32[max_logits, ceil(vocab_size / 32)], anew each step."""

    def __init__(self, max_logits: int, vocab_size: int) -> None:
        self._buffer = np.empty((max_logits, -(-vocab_size // 32)), np.int32)
        self._num_used = 0

    @property
    def rows(self) -> npt.NDArray[np.int32]:
        """The rows written since ``clear``."""
        return self._buffer[: self._num_used]

    def clear(self) -> None:
        self._num_used = 0

    def write(self, row: Row) -> int:
        """Writes the masks of a row's draws; returns the first one's index, or -1 if it has none.

        A guess that the grammar refuses is cut there. If the matcher fails, nothing is written.
        """
        sequence = row.sequence
        matcher, restrictions = sequence.matcher, sequence.restrictions
        num_output = sequence.num_output
        if not row.draws or (matcher is None and not restrictions.active(num_output)):
            return -1
        first, num_accepted = self._num_used, 0
        for offset in range(len(row.draft) + 1):
            mask = self._buffer[first + offset]
            if matcher is None:
                mask.fill(-1)
            else:
                matcher.fill_mask(mask)
            restrictions.apply(mask, num_output + offset)
            if matcher is None or offset == len(row.draft):
                continue
            if not matcher.accept(row.draft[offset]):
                row.cut_draft(offset)
                break
            num_accepted += 1
        if matcher is not None and num_accepted:
            matcher.rollback(num_accepted)
        self._num_used = first + len(row.draft) + 1
        return first

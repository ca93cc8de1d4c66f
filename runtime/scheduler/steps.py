"""From the rows that a step computes to the step: the masks of its draws, and its batch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ramet.runtime.batch import Batch
from ramet.runtime.scheduler.batch_builder import BatchBuilder, Row
from ramet.runtime.scheduler.masks import MaskWriter
from ramet.runtime.scheduler.pages import PageTables
from ramet.runtime.scheduler.slots import Slots


@dataclass(frozen=True, slots=True)
class Step:
    """The rows that a step computes, and their batch."""

    rows: tuple[Row, ...]
    batch: Batch


class StepMaker:
    """Makes steps; the masks of one are gone when the next is made."""

    def __init__(
        self, pages: PageTables, slots: Slots, *, page_size: int, max_logits: int, vocab_size: int
    ) -> None:
        self._pages = pages
        self._masks = MaskWriter(max_logits, vocab_size)
        self._builder = BatchBuilder(slots, page_size)

    def make(self, rows: Iterable[Row]) -> tuple[Step | None, list[tuple[Row, Exception]]]:
        """The step of these rows, and those that are not in it: their own matchers have failed."""
        ready: list[Row] = []
        failed: list[tuple[Row, Exception]] = []
        first_masks: list[int] = []
        self._masks.clear()
        for row in sorted(rows, key=lambda row: self._pages.page_key(row.sequence)):
            try:
                first_masks.append(self._masks.write(row))
            except Exception as error:
                failed.append((row, error))
                continue
            ready.append(row)
        if not ready:
            return None, failed
        batch = self._builder.build(ready, first_masks, self._masks.rows)
        return Step(tuple(ready), batch), failed

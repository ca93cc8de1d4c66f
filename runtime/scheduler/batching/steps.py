"""A step: its rows, their batch, and the token masks of its draws."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ramet.runtime.api.batch import Batch
from ramet.runtime.scheduler.batching.batch_builder import BatchBuilder, Row
from ramet.runtime.scheduler.batching.masks import MaskWriter
from ramet.runtime.scheduler.batching.page_tables import PageTables
from ramet.runtime.scheduler.batching.slots import Slots


@dataclass(frozen=True, slots=True)
class Step:
    """The rows that a step computes, and their batch, whose masks are yet to be written.

    Attributes:
        faults: by row index, the error of a matcher that failed when its masks were written; the
            row's draws are meaningless.
    """

    rows: tuple[Row, ...]
    batch: Batch
    first_masks: tuple[int, ...]
    masks: MaskWriter
    faults: dict[int, Exception] = field(default_factory=dict)

    def write_masks(self) -> None:
        """Writes the batch's masks. They depend on nothing that the step computes."""
        for index, (row, first) in enumerate(zip(self.rows, self.first_masks, strict=True)):
            if first < 0:
                continue
            try:
                self.masks.write(row, first)
            except Exception as error:
                self.faults[index] = error


class StepBuilder:
    """Builds steps; the masks of one are gone when the next is built."""

    def __init__(
        self, pages: PageTables, slots: Slots, *, page_size: int, max_logits: int, vocab_size: int
    ) -> None:
        self._pages = pages
        self._masks = MaskWriter(max_logits, vocab_size)
        self._builder = BatchBuilder(slots, page_size)

    def build(self, rows: Iterable[Row]) -> tuple[Step | None, list[tuple[Row, Exception]]]:
        """The step of these rows, and those that are not in it: their own matchers have failed."""
        ready: list[Row] = []
        failed: list[tuple[Row, Exception]] = []
        first_masks: list[int] = []
        self._masks.clear()
        for row in sorted(rows, key=lambda row: self._pages.page_key(row.sequence)):
            try:
                first_masks.append(self._masks.reserve(row))
            except Exception as error:
                failed.append((row, error))
                continue
            ready.append(row)
        if not ready:
            return None, failed
        batch = self._builder.build(ready, first_masks, self._masks.rows)
        return Step(tuple(ready), batch, tuple(first_masks), self._masks), failed

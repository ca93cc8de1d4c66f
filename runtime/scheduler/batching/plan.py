"""The rows of a step being planned, and its remaining budget."""

from __future__ import annotations

from ramet.runtime.scheduler.batching.batch_builder import Row
from ramet.runtime.scheduler.batching.page_tables import PageTables
from ramet.runtime.scheduler.batching.slots import Slots
from ramet.runtime.scheduler.sequence.sequence import Sequence
from ramet.runtime.scheduler.speculation.draft_budget import draft_lens
from ramet.runtime.scheduler.speculation.drafter import Draft, Drafter
from ramet.runtime.scheduler.speculation.step_cost import StepCost

_DRAFT_TOKEN_COST = 1.25
"""In tokens: kernels compute tokens in groups, and drafts may begin a group they don't fill."""

_MAX_SLOWDOWN = 3.5
"""Most that drafts may lengthen a step: streams without accepted tokens only wait longer."""


class StepPlan:
    """Rows within a budget of tokens and of logits.

    Attributes:
        tokens, logits: the remaining budget.
        preempted: a sequence was preempted, so none is started in this step.
    """

    def __init__(self, tokens: int, logits: int) -> None:
        self.tokens = tokens
        self.logits = logits
        self.preempted = False
        self._rows: dict[Sequence, Row] = {}

    @property
    def rows(self) -> list[Row]:
        return list(self._rows.values())

    @property
    def num_tokens(self) -> int:
        """Tokens of all rows."""
        return sum(row.num_new for row in self._rows.values())

    def add(self, sequence: Sequence, count: int, reserved: int = 0) -> None:
        """Adds a row of ``count`` tokens, or of fewer if logits are short.

        ``reserved`` of the remaining logits are left for other rows.
        """
        row = Row(sequence, count)
        num_logits = self.logits - reserved
        until = sequence.num_computed + count
        if sequence.scoring:
            first = sequence.num_scored - 1
            until = min(until, first + num_logits)
            row.num_new = until - sequence.num_computed
            row.num_scores = max(0, min(until, sequence.num_prompt - 1) - first)
        if sequence.pooler is not None:
            row.num_hidden = sequence.pooler.num_wanted(until)
        row.draws = until == sequence.num_tokens and sequence.pooler is None
        if row.num_logits > num_logits:
            row.draws, row.num_new = False, row.num_new - 1
        if row.num_new < 1:
            return
        self.tokens -= row.num_new
        self.logits -= row.num_logits
        self._rows[sequence] = row

    def drop(self, sequence: Sequence) -> None:
        """Takes a sequence's row out again, if it has one."""
        row = self._rows.pop(sequence, None)
        if row is not None:
            self.tokens += row.num_new
            self.logits += row.num_logits

    def add_drafts(
        self,
        drafter: Drafter,
        pages: PageTables,
        slots: Slots,
        step_cost: StepCost,
        num_arrivals: float,
    ) -> None:
        """Adds drafts to the rows that draw, as far as they pay, within the remaining budget.

        ``num_arrivals`` requests are expected to arrive during the step and wait for its end.
        """
        limit = min(self.tokens, self.logits)
        if limit < 1:
            return
        drafts: list[tuple[Row, Draft]] = []
        for sequence, row in self._rows.items():
            room = sequence.max_len - sequence.num_tokens - 1
            if room < 1 or not row.draws or row.num_scores or sequence.bans.bans_always:
                continue
            if slots.counts_tokens(sequence):
                continue  # penalties would differ from position to position
            draft = drafter.propose(sequence, min(limit, room))
            if draft.token_ids:
                drafts.append((row, draft))
        if not drafts:
            return
        acceptance = [draft.acceptance for _, draft in drafts]
        num_rows = len(self._rows)
        cost, token_cost = step_cost.expected(self.num_tokens, num_rows)
        draft_cost = _DRAFT_TOKEN_COST * token_cost
        limit = min(limit, int((_MAX_SLOWDOWN - 1.0) * cost / draft_cost))
        lens = draft_lens(acceptance, num_rows + num_arrivals, cost, draft_cost, limit)
        for (row, draft), length in zip(drafts, lens, strict=True):
            sequence = row.sequence
            if not length or not pages.grow(sequence, sequence.num_tokens + length):
                continue
            token_ids = draft.token_ids[:length]
            sequence.write_draft(token_ids)
            row.draft = tuple(token_ids)
            row.num_new += length
            self.tokens -= length
            self.logits -= length

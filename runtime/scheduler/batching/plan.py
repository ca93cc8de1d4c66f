"""A step in the making: its rows so far, and what is left of its budget."""

from __future__ import annotations

from ramet.runtime.scheduler.batching.batch_builder import Row
from ramet.runtime.scheduler.batching.page_tables import PageTables
from ramet.runtime.scheduler.batching.slots import Slots
from ramet.runtime.scheduler.sequence.sequence import Sequence
from ramet.runtime.scheduler.speculation.draft_budget import draft_lens
from ramet.runtime.scheduler.speculation.drafter import Drafter, Guess
from ramet.runtime.scheduler.speculation.step_cost import StepCost

_GUESS_COST = 1.25
"""In tokens: kernels take tokens in groups, and a few more begin a group that they don't fill."""

_MAX_SLOWDOWN = 3.5
"""A step with guesses takes at most so many times as long as without: some streams may get nothing
out of them but a longer wait. What larger steps would win is little."""


class StepPlan:
    """Rows within a budget of tokens and of logits.

    Attributes:
        tokens, logits: what is left.
        preempted: somebody had to make room, so nobody new starts in this step.
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
        """Has ``count`` tokens of a sequence computed, fewer if the logits that they owe are more
        than are left; ``reserved`` logits are others'."""
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
        newcomers: float,
    ) -> None:
        """Lets drawing rows guess ahead, as far as it pays, in what is left of the budget.

        ``newcomers`` may come while the step is computed, and have to wait for its end.
        """
        limit = min(self.tokens, self.logits)
        if limit < 1:
            return
        guesses: list[tuple[Row, Guess]] = []
        for sequence, row in self._rows.items():
            room = sequence.max_len - sequence.num_tokens - 1
            if room < 1 or not row.draws or row.num_scores or sequence.restrictions.picky:
                continue
            if slots.counts_tokens(sequence):
                continue  # penalties would differ from position to position
            guess = drafter.guess(sequence, min(limit, room))
            if guess.token_ids:
                guesses.append((row, guess))
        if not guesses:
            return
        odds = [guess.odds for _, guess in guesses]
        num_rows = len(self._rows)
        cost, a_token = step_cost.expected(self.num_tokens, num_rows)
        a_guess = _GUESS_COST * a_token
        limit = min(limit, int((_MAX_SLOWDOWN - 1.0) * cost / a_guess))
        lens = draft_lens(odds, num_rows + newcomers, cost, a_guess, limit)
        for (row, guess), length in zip(guesses, lens, strict=True):
            sequence = row.sequence
            if not length or not pages.grow(sequence, sequence.num_tokens + length):
                continue
            draft = guess.token_ids[:length]
            sequence.write_draft(draft)
            row.draft = tuple(draft)
            row.num_new += length
            self.tokens -= length
            self.logits -= length

"""Applies a step's result to its sequences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ramet.runtime.api.batch import SampledTokens, StepResult
from ramet.runtime.api.events import Embedding, TokenInfo, TokenOrigin
from ramet.runtime.scheduler.batching.batch_builder import Row
from ramet.runtime.scheduler.batching.page_tables import PageTables
from ramet.runtime.scheduler.batching.slots import Slots
from ramet.runtime.scheduler.batching.steps import Step
from ramet.runtime.scheduler.commit.draft_verification import verify_draft
from ramet.runtime.scheduler.commit.output import End, OutputWriter
from ramet.runtime.scheduler.commit.token_infos import num_allowed_tokens
from ramet.runtime.scheduler.queue.stats import SchedulerStats
from ramet.runtime.scheduler.sequence.sequence import Sequence


class Committer:
    """Advances sequences by what was computed and drawn; reports which have ended, and how."""

    def __init__(
        self,
        pages: PageTables,
        slots: Slots,
        output: OutputWriter,
        stats: SchedulerStats,
        clock: Callable[[], float],
    ) -> None:
        self._pages = pages
        self._slots = slots
        self._output = output
        self._stats = stats
        self._clock = clock

    def commit(self, step: Step, result: StepResult) -> Iterator[tuple[Sequence, End | Exception]]:
        """Takes a step's result; yields each sequence that has ended, with how, to be released.

        All rows' pages are shared before any sequence is released.
        """
        drawn = _Drawn(result.sampled, step.batch.sampling.num_logprobs.tolist(), self._output)
        for row in step.rows:
            row.sequence.num_computed += row.num_new - len(row.draft)
            self._pages.publish(row.sequence)
        first = first_hidden = 0
        for index, row in enumerate(step.rows):
            if row.num_hidden:
                self._pool(row, result, first_hidden)
                first_hidden += row.num_hidden
            end: End | Exception | None
            if index in step.faults:
                end = step.faults[index]
            else:
                end = self._take(row, drawn, first)
            if end is not None:
                yield row.sequence, end
            first += row.num_logits

    @staticmethod
    def _pool(row: Row, result: StepResult, first: int) -> None:
        """Takes the row's hidden states, ``result``'s from ``first`` on."""
        if row.sequence.pooler is not None and result.hidden_states is not None:
            row.sequence.pooler.add(result.hidden_states[first : first + row.num_hidden])

    def _take(self, row: Row, drawn: _Drawn, first: int) -> End | Exception | None:
        """Takes the row's tokens, ``drawn`` from ``first`` on; returns the sequence's end."""
        sequence = row.sequence
        try:
            for index in range(first, first + row.num_scores):
                self._take_score(sequence, drawn.token(index))
            end = None
            if row.draws:
                end = self._take_draws(row, drawn, first + row.num_scores)
            self._note_tokens(sequence)
        except Exception as error:  # a fault of this request's own matcher or stream
            return error
        if sequence.num_output and sequence.first_token_time is None:
            sequence.first_token_time = self._clock()
        if end is None and sequence.num_pending <= 0 and sequence.late_draw is None:
            end = self._end_prompt(sequence)
        if end is None:
            self._output.flush(sequence)
        return end

    def resume(self, sequences: Iterable[Sequence]) -> list[tuple[Sequence, End | Exception]]:
        """Takes the late tokens whose masks are made; returns the sequences that have ended."""
        ended: list[tuple[Sequence, End | Exception]] = []
        for sequence in sequences:
            late = sequence.late_draw
            if late is None or not late.done.is_set():
                continue
            end: End | Exception | None
            try:
                end = self._output.resume(sequence, late)
                self._note_tokens(sequence)
                if end is None:
                    self._output.flush(sequence)
            except Exception as error:  # a fault of this request's own matcher or stream
                end = error
            if end is not None:
                ended.append((sequence, end))
        return ended

    def _note_tokens(self, sequence: Sequence) -> None:
        self._stats.count_output(sequence)
        self._output.update_landing(sequence)
        self._slots.note_tokens(sequence)

    @staticmethod
    def _end_prompt(sequence: Sequence) -> End:
        """The end of a prompt that was only to be read."""
        if sequence.pooler is None:
            return End("length")
        sequence.emit(Embedding(sequence.pooler.vector()))
        return End("stop")

    def _take_score(self, sequence: Sequence, token: TokenInfo) -> None:
        sequence.prompt_logprobs.append(token)
        sequence.num_scored += 1
        if not sequence.scoring:
            self._output.send_prompt_logprobs(sequence)

    def _take_draws(self, row: Row, drawn: _Drawn, first: int) -> End | None:
        """Takes the draw; of a row with a draft, those that follow accepted tokens."""
        sequence = row.sequence
        num_allowed = None
        if sequence.params.logprobs is not None:
            num_allowed = num_allowed_tokens(sequence)
        if not row.draft:
            return self._output.advance(sequence, drawn.token(first, num_allowed=num_allowed))

        def advance(offset: int) -> End | None:
            draft = row.draft[offset] if offset < len(row.draft) else None
            allowed = None if offset else num_allowed
            token = drawn.token(first + offset, draft=draft, num_allowed=allowed)
            return self._output.advance(sequence, token)

        num_accepted, end = verify_draft(sequence, row.draft, advance)
        self._stats.num_drafted_tokens += len(row.draft)
        self._stats.num_accepted_tokens += num_accepted
        if end is None:
            self._pages.publish(sequence)
        return end


class _Drawn:
    """A step's tokens, with the log-probabilities that their requests want."""

    def __init__(
        self, result: SampledTokens, num_logprobs: list[int], output: OutputWriter
    ) -> None:
        self._result = result
        self._token_ids: list[int] = result.token_ids.tolist()
        self._num_logprobs = num_logprobs
        self._output = output

    def token(
        self, index: int, *, draft: int | None = None, num_allowed: int | None = None
    ) -> TokenInfo:
        """The token of a row of the step; it was drafted if it is ``draft``."""
        wanted, token_id = self._num_logprobs[index], self._token_ids[index]
        if wanted < 0:
            return self._output.token_infos.info(token_id)
        result = self._result
        ids = result.top_token_ids[index, :wanted].tolist()
        values = result.top_logprobs[index, :wanted].tolist()
        top = tuple((i, value) for i, value in zip(ids, values, strict=True) if i >= 0)
        origin: TokenOrigin = "drafted" if token_id == draft else "sampled"
        logprob = float(result.logprobs[index])
        return self._output.token_infos.info(token_id, logprob, top, origin, num_allowed)

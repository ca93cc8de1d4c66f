"""Continuous batching: which tokens the next step computes, and what its result does.

A step is ``schedule()``, the runner's ``run``, ``commit(step, result)``. Decode, chunked prefill,
forced tokens and the recomputation of preempted sequences are one thing here: a sequence has known
tokens that the model has yet to read, and draws a new one when it has read them all.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping

from ramet.runtime.api.batch import StepResult
from ramet.runtime.api.errors import (
    DeadlineExceededError,
    InvariantError,
    as_ramet_error,
)
from ramet.runtime.api.events import Failed, Finished
from ramet.runtime.api.request import HintUpdate
from ramet.runtime.cache import RadixCache
from ramet.runtime.scheduler.batching.batch_builder import Row
from ramet.runtime.scheduler.batching.page_tables import PageTables
from ramet.runtime.scheduler.batching.selector import BatchSelector
from ramet.runtime.scheduler.batching.slots import Slots
from ramet.runtime.scheduler.batching.steps import Step, StepBuilder
from ramet.runtime.scheduler.commit.committer import Committer
from ramet.runtime.scheduler.commit.output import End, OutputWriter
from ramet.runtime.scheduler.programs.admission import ProgramAdmission
from ramet.runtime.scheduler.programs.programs import Programs
from ramet.runtime.scheduler.queue.config import SchedulerConfig
from ramet.runtime.scheduler.queue.policy import POLICIES, Ranking, TenantShares
from ramet.runtime.scheduler.queue.service_levels import ServiceLevels
from ramet.runtime.scheduler.queue.stats import SchedulerStats
from ramet.runtime.scheduler.queue.waiting import Deadlines, WaitingQueue
from ramet.runtime.scheduler.sequence.sequence import Sequence, SequenceState
from ramet.runtime.scheduler.speculation.drafter import Drafter, index_prompt
from ramet.runtime.scheduler.speculation.step_cost import StepCost
from ramet.runtime.tokenizer.tokenizer import Tokenizer

_ARRIVAL_EMA_WEIGHT = 0.1
"""Weight of the last step in the moving average of arrivals a step."""


class Scheduler:
    """Runs sequences over one page pool and one prefix cache. Not thread-safe.

    Args:
        cache: prefix cache and page pool.
        tokenizer: end-of-text ids, and tokens' bytes.
        vocab_size: columns of the runner's logits.
        max_len: most tokens a sequence may have, prompt and output.
        clock: seconds; a simulated one in tests.
        timer: seconds by which steps are timed, to know what drafts cost; None: prior costs hold.
        on_end: called with each sequence that has ended, before its terminal event.
        run_in_background: runs a task in a thread, for masks that take longer than a step may.
    """

    def __init__(
        self,
        cache: RadixCache,
        tokenizer: Tokenizer,
        *,
        vocab_size: int,
        max_len: int,
        config: SchedulerConfig | None = None,
        clock: Callable[[], float],
        timer: Callable[[], float] | None = None,
        on_end: Callable[[Sequence], None] = lambda _: None,
        run_in_background: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        self.config = config = config or SchedulerConfig()
        self.cache = cache
        self.clock = clock
        self._on_end = on_end
        self.stats = SchedulerStats()
        max_pages = -(-max_len // cache.page_size)
        self._slots = Slots(config.max_num_seqs, max_pages)
        self._pages = PageTables(cache, self._slots)
        self._step_builder = StepBuilder(
            self._pages,
            self._slots,
            page_size=cache.page_size,
            max_logits=config.max_logits_per_step,
            vocab_size=vocab_size,
        )
        self._output = OutputWriter(
            tokenizer,
            vocab_size,
            forced_tokens=config.forced_tokens,
            run_in_background=run_in_background,
        )
        self._drafter = Drafter(cache, config.max_draft_len) if config.max_draft_len else None
        self._committer = Committer(self._pages, self._slots, self._output, self.stats, clock)
        self._running: dict[Sequence, None] = {}
        self._step_cost = StepCost(timer)
        levels = ServiceLevels(config, cache, self._step_cost, self._running, clock)
        self._levels = levels if config.policy == "slack" else None
        self._ranking = Ranking(
            POLICIES[config.policy](cache, levels),
            TenantShares(config.tenant_weights),
            config.max_wait_s,
        )
        self._waiting = WaitingQueue(by_arrival=self._ranks_by_arrival)
        whole_programs = config.policy == "program-aware"
        self._programs = Programs(
            cache,
            max_kept_share=1.0 if whole_programs else 0.25,
            only_tools=not whole_programs,
            on_forgotten=lambda program: self._admission.forget(program),
        )
        self._admission = ProgramAdmission(
            cache, self._programs, self._waiting.set_awaiting, limited=whole_programs
        )
        self._deadlines = Deadlines()
        self._compiling: dict[Sequence, None] = {}
        self._selector = BatchSelector(
            config,
            waiting=self._waiting,
            running=self._running,
            slots=self._slots,
            pages=self._pages,
            ranking=self._ranking,
            programs=self._programs,
            admission=self._admission,
            stats=self.stats,
            clock=clock,
            release=self.release,
            levels=self._levels,
        )
        self._num_arrived = 0  # since the last step
        self._arrivals_a_step = 0.0  # moving average
        self._arrivals = itertools.count()

    def _ranks_by_arrival(self) -> bool:
        policy = self.config.policy
        return policy == "fcfs" or (policy == "program-aware" and not len(self._programs))

    # -- arrivals and ends ---------------------------------------------------------------------

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_compiling(self) -> int:
        """Sequences that wait for their grammars."""
        return len(self._compiling)

    @property
    def idle(self) -> bool:
        """Whether nothing waits to run, or runs."""
        return not len(self._waiting) and not self._running

    def index_prompt(self, sequence: Sequence) -> None:
        """Indexes a sequence's prompt for drafts before it is added; safe from any thread.

        Skipped where the queue is long, as the index would take memory for long.
        """
        wanted = self._drafter is not None and sequence.pooler is None
        if wanted and len(self._waiting) < self.config.max_num_seqs:
            sequence.ngram_index = index_prompt(sequence)

    def hold(self, sequence: Sequence) -> None:
        """Holds a sequence until its grammar is compiled: then ``add`` queues it."""
        if sequence.state is SequenceState.NEW:
            sequence.state = SequenceState.COMPILING
            self._compiling[sequence] = None
            self._deadlines.add(sequence)

    def add(self, sequence: Sequence) -> None:
        """Queues a sequence; does nothing for one that has been released before."""
        if sequence.state is SequenceState.FINISHED:
            return
        if sequence.state is SequenceState.COMPILING:
            del self._compiling[sequence]
        else:
            self._deadlines.add(sequence)
        if self.idle:
            self.stats.note_work(self.clock())
            self._admission.throughput.pause()
        sequence.state = SequenceState.WAITING
        sequence.arrival = next(self._arrivals)
        self._num_arrived += 1
        self._ranking.shares.add_request(sequence.request.tenant)
        program = self._programs.add_call(sequence, self.clock())
        sequence.awaits_admission = program is not None and self._admission.add_call(program)
        self._waiting.add(sequence)
        if self._levels is not None and (refusal := self._levels.add(sequence)) is not None:
            self.release(sequence, refusal)
            return
        if sequence.params.prompt_logprobs is not None and not sequence.scoring:
            self._output.send_prompt_logprobs(sequence)
        try:
            end = self._output.start_output(sequence)
            self._output.update_landing(sequence)
        except Exception as error:  # a fault of one request's own matcher
            self.release(sequence, error)
            return
        if end is None and sequence.num_pending <= 0:
            end = End("length")
        if end is not None:
            self.release(sequence, end)

    def release(self, sequence: Sequence, reason: End | Exception) -> None:
        """Ends a sequence: the only way out, from any state; a second call does nothing.

        Its pages go to the cache or are freed, and its caller gets the one terminal event, even if
        the bookkeeping fails.
        """
        if sequence.state is SequenceState.FINISHED:
            return
        error = as_ramet_error(reason) if isinstance(reason, Exception) else None
        state, sequence.state = sequence.state, SequenceState.FINISHED
        now = self.clock()
        try:
            if state in (SequenceState.WAITING, SequenceState.RUNNING):
                self._leave(sequence, state, now, is_success=error is None)
                self.stats.note_work_done(sequence, now, is_success=error is None)
            self._compiling.pop(sequence, None)
        finally:
            sequence.matcher = None
            self.stats.note_end(error or reason)
            self._on_end(sequence)
            if error is not None:
                sequence.emit(Failed(error, sequence.usage()))
            else:
                assert isinstance(reason, End)
                end = reason.reason, sequence.usage(), sequence.timings(now), reason.matched_stop
                sequence.emit(Finished(*end))

    def _leave(
        self, sequence: Sequence, state: SequenceState, now: float, *, is_success: bool
    ) -> None:
        """Takes a waiting or running sequence out of all books."""
        handle = None
        if state is SequenceState.RUNNING:
            handle = self._pages.return_pages(sequence)
            del self._running[sequence]
        else:
            self._waiting.remove(sequence)
            if self._levels is not None:
                self._levels.remove(sequence)
        self._ranking.finish(sequence)
        if self._drafter is not None:
            self._drafter.drop(sequence)
        self._programs.end_call(sequence, handle, now, is_success=is_success)
        self._output.flush(sequence, final=True)

    def update_hint(self, update: HintUpdate) -> None:
        """Updates what is known of a program's future calls."""
        self._programs.update_hint(update)

    def set_tenant_weights(self, weights: Mapping[str, float]) -> None:
        """Replaces the tenants' shares, for tokens to come."""
        self._ranking.shares.weights = weights

    # -- a step --------------------------------------------------------------------------------

    def schedule(self) -> Step | None:
        """Chooses the next step's work; None when there is none."""
        now = self.clock()
        self._step_cost.start()
        self._expire(now)
        for sequence, end in self._committer.resume(self._running):
            self.release(sequence, end)
        arrived, self._num_arrived = self._num_arrived, 0
        self._arrivals_a_step += _ARRIVAL_EMA_WEIGHT * (arrived - self._arrivals_a_step)
        plan = self._selector.select(now)
        if self._drafter is not None:
            plan.add_drafts(
                self._drafter, self._pages, self._slots, self._step_cost, self._arrivals_a_step
            )
        return self._make_step(plan.rows)

    def split(self, step: Step) -> Iterator[Step]:
        """A step for each row alone, to find which of them a runner fails on.

        Each must have been run before the next is asked for: they share a buffer for masks.
        """
        for row in step.rows:
            alone = self._make_step([row])
            if alone is not None:
                yield alone

    def commit(self, step: Step, result: StepResult) -> None:
        """Commits a step's result: advances, publishes and releases its sequences."""
        self.stats.note_step(step.batch.num_tokens, len(step.rows))
        self._admission.throughput.observe(self.clock(), step.batch.num_tokens)
        for sequence, end in self._committer.commit(step, result):
            self.release(sequence, end)
        self._step_cost.stop(step.batch.num_tokens, len(step.rows))

    def fail(self, step: Step, error: Exception) -> None:
        """Ends the sequences of a step that could not be computed."""
        for row in step.rows:
            self.release(row.sequence, error)

    # -- inside a step -------------------------------------------------------------------------

    def _expire(self, now: float) -> None:
        self._programs.expire(now)
        for sequence in self._deadlines.late(now):
            self.release(sequence, DeadlineExceededError("the request's deadline has passed"))
        for sequence, refusal in self._levels.find_late(now) if self._levels is not None else ():
            self.release(sequence, refusal)

    def _make_step(self, rows: list[Row]) -> Step | None:
        """The step of these rows; a sequence whose matcher fails drops out, and ends."""
        step, failed = self._step_builder.build(rows)
        for row, error in failed:
            self.release(row.sequence, error)
        for row in step.rows if step is not None else ():
            self._ranking.charge(row.sequence, row.num_new)
        return step

    # -- invariants ----------------------------------------------------------------------------

    def check(self) -> None:
        """Raises InvariantError unless pages, slots and states are consistent."""
        owned: list[int] = []
        for sequence in self._running:
            if sequence.state is not SequenceState.RUNNING or sequence.held is None:
                raise InvariantError("a running sequence holds no prefix")
            if sequence.num_pending < 1 and sequence.late_draw is None:
                raise InvariantError("a running sequence has nothing to compute")
            owned.extend(self._pages.owned(sequence))
        for sequence in self._waiting:
            if sequence.state is not SequenceState.WAITING or sequence.held is not None:
                raise InvariantError("a waiting sequence holds pages")
        if any(each.state is not SequenceState.COMPILING for each in self._compiling):
            raise InvariantError("a sequence is held for a grammar that it doesn't wait for")
        if self._slots.num_free != self.config.max_num_seqs - len(self._running):
            raise InvariantError("a slot was lost")
        self.cache.check(owned)
        if not (self._running or self._programs.num_held) and self.cache.num_locked:
            raise InvariantError("pages are held and nothing runs")

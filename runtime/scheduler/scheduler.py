"""Continuous batching: which tokens the next step computes, and what its result does.

A step is ``step = schedule()``, logits by the runner, tokens by the sampler, ``commit(step,
result)``. Decode, chunks of prompts, forced tokens and the recomputation of preempted sequences
are one thing here: a sequence has known tokens that the model has yet to read, and draws a new one
when it has read them all.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from ramet.runtime.api.batch import StepResult
from ramet.runtime.api.errors import (
    DeadlineExceededError,
    InvariantError,
    OutOfPagesError,
    QueueFullError,
    RametError,
)
from ramet.runtime.api.events import Failed, Finished
from ramet.runtime.api.request import HintUpdate
from ramet.runtime.cache import RadixCache
from ramet.runtime.scheduler.batching.batch_builder import Row
from ramet.runtime.scheduler.batching.page_tables import PageTables, Start
from ramet.runtime.scheduler.batching.plan import StepPlan
from ramet.runtime.scheduler.batching.slots import Slots
from ramet.runtime.scheduler.batching.steps import Step, StepMaker
from ramet.runtime.scheduler.commit.committer import Committer, request_error
from ramet.runtime.scheduler.commit.output import End, OutputWriter
from ramet.runtime.scheduler.programs.admission import ProgramAdmission
from ramet.runtime.scheduler.programs.programs import Programs
from ramet.runtime.scheduler.queue.config import SchedulerConfig
from ramet.runtime.scheduler.queue.policy import POLICIES, Rank, Ranking, TenantShares
from ramet.runtime.scheduler.queue.stats import SchedulerStats
from ramet.runtime.scheduler.queue.waiting import Deadlines, WaitingQueue
from ramet.runtime.scheduler.sequence.sequence import Blocked, Sequence, SequenceState
from ramet.runtime.scheduler.speculation.drafter import Drafter, index_prompt
from ramet.runtime.scheduler.speculation.step_cost import StepCost
from ramet.runtime.tokenizer.tokenizer import Tokenizer

SHORT_LEN = 16
"""Sequences with at most this many tokens to read go before longer ones: they are decoding."""

_LATELY = 0.1
"""How much the last step counts among those of late."""

_CANDIDATES_A_SLOT = 4
"""Most waiting sequences that a step looks at, a slot."""


class Scheduler:
    """Runs sequences over one page pool and one prefix cache. Not thread-safe.

    Args:
        cache: prefix cache and page pool.
        tokenizer: end-of-text ids, and tokens' bytes.
        vocab_size: columns of the runner's logits.
        max_len: most tokens a sequence may have, prompt and output.
        clock: seconds; a simulated one in tests.
        timer: seconds by which steps are timed, to know what drafts cost; None: that is taken to
            be as usual.
        on_end: told of each sequence that has ended.
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
    ) -> None:
        self.config = config = config or SchedulerConfig()
        self.cache = cache
        self.clock = clock
        self._on_end = on_end
        self.stats = SchedulerStats()
        max_pages = -(-max_len // cache.page_size)
        self._slots = Slots(config.max_num_seqs, max_pages)
        self._pages = PageTables(cache, self._slots)
        self._steps = StepMaker(
            self._pages,
            self._slots,
            page_size=cache.page_size,
            max_logits=config.max_logits_per_step,
            vocab_size=vocab_size,
        )
        self._output = OutputWriter(tokenizer, vocab_size, forced_tokens=config.forced_tokens)
        self._drafter = Drafter(cache, config.max_draft_len) if config.max_draft_len else None
        self._committer = Committer(self._pages, self._slots, self._output, self.stats, clock)
        self._ranking = Ranking(
            POLICIES[config.policy](cache),
            TenantShares(config.tenant_weights),
            config.max_wait_s,
        )
        self._waiting = WaitingQueue(by_arrival=self._ranks_by_arrival)
        whole_programs = config.policy == "program-aware"
        self._programs = Programs(
            cache,
            max_kept_share=1.0 if whole_programs else 0.25,
            only_tools=not whole_programs,
            on_gone=lambda program: self._admission.gone(program),
        )
        self._admission = ProgramAdmission(
            cache, self._programs, self._waiting.park, limited=whole_programs
        )
        self._deadlines = Deadlines()
        self._running: dict[Sequence, None] = {}
        self._timer = timer
        self._step_cost = StepCost()
        self._step_began = 0.0
        self._num_new = 0  # that have come since the last step
        self._newcomers = 0.0  # that come while a step is computed, as of late
        self._starved = False  # whether the last step had no pages for who was next
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
    def idle(self) -> bool:
        return not len(self._waiting) and not self._running

    def knows(self, sequence: Sequence) -> bool:
        """Whether the sequence waits or runs here."""
        return sequence in self._waiting or sequence in self._running

    def prepare(self, sequence: Sequence) -> None:
        """Does ahead, in whichever thread, what a sequence needs once it runs; nothing where so
        many wait that it would be kept for long."""
        wanted = self._drafter is not None and sequence.pooler is None
        if wanted and len(self._waiting) < self.config.max_num_seqs:
            sequence.ngram_index = index_prompt(sequence)

    def add(self, sequence: Sequence) -> None:
        """Queues a sequence; QueueFullError when too many wait already."""
        if len(self._waiting) >= self.config.max_waiting:
            excess = len(self._waiting) - self.config.max_waiting + 1
            raise QueueFullError(
                f"{len(self._waiting)} requests are waiting, and that is the limit",
                retry_after_s=self.stats.expected_wait_s(excess),
            )
        if self.idle:
            self.stats.note_work(self.clock())
            self._admission.throughput.rest()
        sequence.arrival = next(self._arrivals)
        self._num_new += 1
        self._ranking.shares.arrive(sequence.request.tenant)
        program = self._programs.arrive(sequence, self.clock())
        sequence.parked = program is not None and self._admission.arrive(program)
        self._waiting.add(sequence)
        self._deadlines.add(sequence)
        if sequence.params.prompt_logprobs is not None and not sequence.scoring:
            self._output.send_prompt_logprobs(sequence)
        try:
            end = self._output.begin(sequence)
        except Exception as error:  # a fault of one request's own matcher
            self.release(sequence, request_error(error))
            return
        if end is None and sequence.num_pending <= 0:
            end = End("length")
        if end is not None:
            self.release(sequence, end)

    def release(self, sequence: Sequence, reason: End | RametError) -> None:
        """Every sequence's only way out, in whatever state it is; a second call does nothing.

        Its pages go to the cache or are freed, and its caller gets the one terminal event.
        """
        if sequence.state is SequenceState.FINISHED:
            return
        now = self.clock()
        handle = None
        if sequence.state is SequenceState.RUNNING:
            handle = self._pages.give_back(sequence)
            del self._running[sequence]
        else:
            self._waiting.remove(sequence)
        sequence.state = SequenceState.FINISHED
        sequence.matcher = None
        self._ranking.finish(sequence)
        if self._drafter is not None:
            self._drafter.drop(sequence)
        self._programs.leave(sequence, handle, now, well=isinstance(reason, End))
        self._output.flush(sequence, final=True)
        self.stats.note_end(sequence, reason, now)
        self._on_end(sequence)
        if isinstance(reason, End):
            event = Finished(
                reason.reason, sequence.usage(), sequence.timings(now), reason.matched_stop
            )
            sequence.emit(event)
        else:
            sequence.emit(Failed(reason, sequence.usage()))

    def update_hint(self, update: HintUpdate) -> None:
        """Takes in what a program has learned since its calls were sent."""
        self._programs.update_hint(update)

    def release_all(self, error: RametError) -> None:
        """Ends every sequence with one error."""
        for sequence in [*self._running, *self._waiting]:
            self.release(sequence, error)

    # -- a step --------------------------------------------------------------------------------

    def schedule(self) -> Step | None:
        """Picks the next step's work; None when there is none.

        First every decoding sequence gets its token, so that a long prompt delays it by no more
        than one step; then prompts, running before waiting, get what the budget has left.
        """
        now = self.clock()
        if self._timer is not None:
            self._step_began = self._timer()
        self._expire(now)
        self._newcomers += _LATELY * (self._num_new - self._newcomers)
        self._num_new = 0
        plan = StepPlan(self.config.max_tokens_per_step, self.config.max_logits_per_step)
        ranks = {sequence: self._ranking.rank(sequence, now) for sequence in self._running}
        order = sorted(self._running, key=ranks.__getitem__)
        short = [sequence for sequence in order if sequence.num_pending <= SHORT_LEN]
        for index, sequence in enumerate(short):
            self._continue(sequence, plan, order, reserved=len(short) - index - 1)
        for sequence in order:
            if sequence.num_pending > SHORT_LEN:
                self._continue(sequence, plan, order, reserved=0)
        if not plan.preempted:
            self._make_way(plan, ranks, now)
            self._admit(plan, now)
        if self._drafter is not None:
            plan.add_drafts(
                self._drafter, self._pages, self._slots, self._step_cost, self._newcomers
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
        """Takes a step's tokens: advances its sequences, shares their pages, ends who is done."""
        self.stats.note_step(step.batch.num_tokens, len(step.rows))
        self._admission.throughput.note(self.clock(), step.batch.num_tokens)
        for sequence, end in self._committer.commit(step, result):
            self.release(sequence, end)
        if self._timer is not None:
            seconds = self._timer() - self._step_began
            self._step_cost.observe(step.batch.num_tokens, len(step.rows), seconds)

    def fail(self, step: Step, error: Exception) -> None:
        """Ends the sequences of a step that could not be computed."""
        for row in step.rows:
            self.release(row.sequence, request_error(error))

    # -- inside a step -------------------------------------------------------------------------

    def _expire(self, now: float) -> None:
        self._programs.expire(now)
        for sequence in self._deadlines.late(now):
            self.release(sequence, DeadlineExceededError("the request's deadline has passed"))

    def _continue(
        self, sequence: Sequence, plan: StepPlan, order: list[Sequence], *, reserved: int
    ) -> None:
        """Gives a running sequence a row, preempting from the order's end if pages run out."""
        if sequence.state is not SequenceState.RUNNING:
            return
        count = min(sequence.num_pending, plan.tokens - reserved)
        if count < 1:
            return
        while not self._pages.grow(sequence, sequence.num_computed + count):
            if self._admission.give_way(sequence, stuck=len(self._running) == 1):
                continue
            victim = next(s for s in reversed(order) if s.state is SequenceState.RUNNING)
            if victim is sequence and len(self._running) == 1:
                self.release(sequence, OutOfPagesError("the page pool is too small to go on"))
                return
            self._preempt(victim)
            self._admission.preempted(victim, by=sequence)
            plan.drop(victim)
            plan.preempted = True
            if victim is sequence:
                return
        plan.add(sequence, count, reserved)

    def _preempt(self, victim: Sequence) -> None:
        """Puts a running sequence back among the waiting; its prefix stays cached while it can."""
        self._pages.give_back(victim)
        del self._running[victim]
        victim.state = SequenceState.WAITING
        victim.num_preemptions += 1
        victim.waits_since = self.clock() - victim.waited_s
        self._waiting.add(victim)
        self.stats.num_preemptions += 1

    def _make_way(self, plan: StepPlan, ranks: dict[Sequence, Rank], now: float) -> None:
        """Preempts one sequence for a waiting one of higher priority that found no room."""
        if not len(self._waiting) or (self._slots.num_free and not self._starved):
            return
        running = [sequence for sequence in ranks if sequence.state is SequenceState.RUNNING]
        least = min((sequence.request.priority for sequence in running), default=None)
        top = self._waiting.top_priority
        if least is None or top is None or top <= least:
            return
        ((rank, candidate),) = self._waiting.first(1, lambda each: self._ranking.rank(each, now))
        victim = max(running, key=ranks.__getitem__)
        outranked = rank < ranks[victim] and victim.request.priority < candidate.request.priority
        if not outranked or self._still_blocked(candidate):
            return
        self._preempt(victim)
        plan.drop(victim)

    def _admit(self, plan: StepPlan, now: float) -> None:
        """Starts waiting sequences while slots, budget and pages last."""
        self._ranking.recall()
        if not len(self._waiting) or not self._slots.num_free or plan.tokens < 1:
            return
        rank_now: Callable[[Sequence], Rank] = lambda each: self._ranking.rank(each, now)  # noqa: E731
        was_starved, self._starved = self._starved, False
        if not was_starved:  # else who came earlier has no pages yet
            self._admission.admit(rank_now, now)
        candidates = self._waiting.first(_CANDIDATES_A_SLOT * self.config.max_num_seqs, rank_now)
        for rank, sequence in candidates:
            if not self._slots.num_free or plan.tokens < 1 or plan.logits < 1:
                return
            try:
                room = self._try_to_start(sequence, plan, rank, now)
            except Exception as error:  # a fault in what this request asks for
                self.release(sequence, request_error(error))
                continue
            if not room:
                self._starved = True
                return

    def _try_to_start(self, sequence: Sequence, plan: StepPlan, rank: Rank, now: float) -> bool:
        """Starts a waiting sequence, unless it should wait for another; False: there's no room."""
        blocked = self._still_blocked(sequence)
        start = blocked or self._pages.find_start(sequence, self._running)
        if isinstance(start, Blocked):
            sequence.blocked_on = start
            self._ranking.lend(rank, start.by)
            return True
        sequence.blocked_on = None
        if not self._take_pages(sequence, start):
            if self._running:
                return False
            raise OutOfPagesError("the page pool is too small for the request")
        self._programs.start(sequence)
        self._start(sequence, now)
        plan.add(sequence, min(sequence.num_pending, plan.tokens))
        return True

    def _take_pages(self, sequence: Sequence, start: Start) -> bool:
        """Gives a waiting sequence its pages; what later programs keep gives way first."""
        while not self._pages.take(sequence, start, headroom=len(self._running)):
            if not self._admission.give_way(sequence, stuck=not self._running):
                return False
        return True

    @staticmethod
    def _still_blocked(sequence: Sequence) -> Blocked | None:
        blocked = sequence.blocked_on
        if blocked is None or blocked.by.state is not SequenceState.RUNNING:
            return None
        return blocked if blocked.by.num_computed < blocked.until_len else None

    def _start(self, sequence: Sequence, now: float) -> None:
        self._waiting.remove(sequence)
        self._running[sequence] = None
        sequence.state = SequenceState.RUNNING
        sequence.waited_s = now - sequence.waits_since
        self.stats.num_cached_tokens += sequence.num_computed
        if sequence.scheduled_time is None:
            sequence.scheduled_time = now
            sequence.cached_len = min(sequence.num_computed, sequence.num_prompt - 1)

    def _make_step(self, rows: list[Row]) -> Step | None:
        """The step of these rows; a sequence whose matcher fails drops out, and ends."""
        step, failed = self._steps.make(rows)
        for row, error in failed:
            self.release(row.sequence, request_error(error))
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
            if sequence.num_pending < 1:
                raise InvariantError("a running sequence has nothing to compute")
            owned.extend(self._pages.owned(sequence))
        for sequence in self._waiting:
            if sequence.state is not SequenceState.WAITING or sequence.held is not None:
                raise InvariantError("a waiting sequence holds pages")
        if self._slots.num_free != self.config.max_num_seqs - len(self._running):
            raise InvariantError("a slot was lost")
        self.cache.check(owned)
        if not (self._running or self._programs.num_held) and self.cache.num_locked:
            raise InvariantError("pages are held and nothing runs")

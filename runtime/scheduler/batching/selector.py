"""Selects the sequences that a step computes: running ones, and waiting ones that fit."""

from __future__ import annotations

from collections.abc import Callable

from ramet.runtime.api.errors import OutOfPagesError
from ramet.runtime.scheduler.batching.page_tables import PageTables, Start
from ramet.runtime.scheduler.batching.plan import StepPlan
from ramet.runtime.scheduler.batching.slots import Slots
from ramet.runtime.scheduler.programs.admission import ProgramAdmission
from ramet.runtime.scheduler.programs.programs import Programs
from ramet.runtime.scheduler.queue.config import SchedulerConfig
from ramet.runtime.scheduler.queue.policy import Rank, Ranking
from ramet.runtime.scheduler.queue.service_levels import ServiceLevels
from ramet.runtime.scheduler.queue.stats import SchedulerStats
from ramet.runtime.scheduler.queue.waiting import WaitingQueue
from ramet.runtime.scheduler.sequence.sequence import Blocked, Sequence, SequenceState

SHORT_LEN = 16
"""Sequences with at most this many tokens to read go before longer ones: they are decoding."""

_CANDIDATES_A_SLOT = 4
"""Most waiting sequences that a step considers, by slot."""


class BatchSelector:
    """Continues, preempts and starts sequences within a step's budget.

    Args:
        waiting, running: the scheduler's sequences, which move between the two.
        release: ends a sequence that can't go on.
        levels: sizes steps by the running streams' TPOT targets; None: all have one size.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        *,
        waiting: WaitingQueue,
        running: dict[Sequence, None],
        slots: Slots,
        pages: PageTables,
        ranking: Ranking,
        programs: Programs,
        admission: ProgramAdmission,
        stats: SchedulerStats,
        clock: Callable[[], float],
        release: Callable[[Sequence, Exception], None],
        levels: ServiceLevels | None,
    ) -> None:
        self._config = config
        self._waiting = waiting
        self._running = running
        self._slots = slots
        self._pages = pages
        self._ranking = ranking
        self._programs = programs
        self._admission = admission
        self._stats = stats
        self._clock = clock
        self._release = release
        self._levels = levels
        self._is_starved = False  # the last step had too few pages for the next in order

    def select(self, now: float) -> StepPlan:
        """Selects a step's rows, without drafts.

        First every decoding sequence gets its token, so that a long prompt delays it by no more
        than one step; then prompts, running before waiting, get what the budget has left.
        """
        num_tokens = self._config.max_tokens_per_step
        if self._levels is not None:
            num_tokens = self._levels.step_tokens(now)
        plan = StepPlan(num_tokens, self._config.max_logits_per_step)
        ranks = {sequence: self._ranking.rank(sequence, now) for sequence in self._running}
        order = sorted(self._running, key=ranks.__getitem__)
        short = [sequence for sequence in order if sequence.num_pending <= SHORT_LEN]
        for index, sequence in enumerate(short):
            self._continue(sequence, plan, order, reserved=len(short) - index - 1)
        for sequence in order:
            if sequence.num_pending > SHORT_LEN:
                self._continue(sequence, plan, order, reserved=0)
        if not plan.preempted:
            self._preempt_for_priority(plan, ranks, now)
            self._start_waiting(plan, now)
        return plan

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
            if self._admission.reclaim_pages(sequence, stuck=len(self._running) == 1):
                continue
            victim = next(s for s in reversed(order) if s.state is SequenceState.RUNNING)
            if victim is sequence and len(self._running) == 1:
                self._release(sequence, OutOfPagesError("the page pool is too small to go on"))
                return
            self._preempt(victim)
            self._admission.note_preemption(victim, by=sequence)
            plan.drop(victim)
            plan.preempted = True
            if victim is sequence:
                return
        plan.add(sequence, count, reserved)

    def _preempt(self, victim: Sequence) -> None:
        """Puts a running sequence back among the waiting; its prefix stays cached while it can."""
        if victim.late_draw is not None:
            # The token is drawn again.
            victim.late_draw = None
            assert victim.matcher is not None
            victim.matcher.rollback(1)
        self._pages.return_pages(victim)
        del self._running[victim]
        victim.state = SequenceState.WAITING
        victim.num_preemptions += 1
        victim.waits_since = self._clock() - victim.waited_s
        self._waiting.add(victim)
        self._stats.num_preemptions += 1

    def _preempt_for_priority(
        self, plan: StepPlan, ranks: dict[Sequence, Rank], now: float
    ) -> None:
        """Preempts one sequence for a waiting one of higher priority that found no room."""
        if not len(self._waiting) or (self._slots.num_free and not self._is_starved):
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

    def _start_waiting(self, plan: StepPlan, now: float) -> None:
        """Starts waiting sequences while slots, budget and pages last."""
        self._ranking.clear_inherited()
        if not len(self._waiting) or not self._slots.num_free or plan.tokens < 1:
            return
        rank_now: Callable[[Sequence], Rank] = lambda each: self._ranking.rank(each, now)  # noqa: E731
        was_starved, self._is_starved = self._is_starved, False
        if not was_starved:  # else earlier ones have no pages yet
            self._admission.admit(rank_now, now)
        candidates = self._waiting.first(_CANDIDATES_A_SLOT * self._config.max_num_seqs, rank_now)
        for rank, sequence in candidates:
            if not self._slots.num_free or plan.tokens < 1 or plan.logits < 1:
                return
            try:
                room = self._try_to_start(sequence, plan, rank, now)
            except Exception as error:  # a fault in what this request asks for
                self._release(sequence, error)
                continue
            if not room:
                self._is_starved = True
                return

    def _try_to_start(self, sequence: Sequence, plan: StepPlan, rank: Rank, now: float) -> bool:
        """Starts a waiting sequence, unless it should wait for another; False: there's no room."""
        blocked = self._still_blocked(sequence)
        start = blocked or self._pages.find_start(sequence, self._running)
        if isinstance(start, Blocked):
            sequence.blocked_on = start
            self._ranking.inherit(rank, start.by)
            return True
        sequence.blocked_on = None
        if not self._take_pages(sequence, start):
            if self._running:
                return False
            raise OutOfPagesError("the page pool is too small for the request")
        self._programs.start_call(sequence)
        self._start(sequence, now)
        plan.add(sequence, min(sequence.num_pending, plan.tokens))
        return True

    def _take_pages(self, sequence: Sequence, start: Start) -> bool:
        """Assigns pages to a waiting sequence, releasing kept prefixes of later programs first."""
        while not self._pages.assign_pages(sequence, start, headroom=len(self._running)):
            if not self._admission.reclaim_pages(sequence, stuck=not self._running):
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
        if self._levels is not None:
            self._levels.start(sequence, now)
        self._running[sequence] = None
        sequence.state = SequenceState.RUNNING
        sequence.waited_s = now - sequence.waits_since
        self._stats.num_cached_tokens += sequence.num_computed
        if sequence.scheduled_time is None:
            sequence.scheduled_time = now
            sequence.cached_len = min(sequence.num_computed, sequence.num_prompt - 1)

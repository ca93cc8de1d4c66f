"""A step of the engine: schedule, run, commit; and which requests a fault in it ends."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError, Future

from ramet.runtime.api.batch import ModelRunner, StepResult
from ramet.runtime.api.errors import EngineDeadError, RametError
from ramet.runtime.engine.grammars.grammar_manager import CompiledGrammar
from ramet.runtime.engine.monitoring.idle_collector import IdleCollector
from ramet.runtime.scheduler import Scheduler, Sequence, SequenceState, Step

logger = logging.getLogger("ramet.engine")

_LONG_IDLE_S = 1.0
"""After so long without a step, work may be done that a new request would have to wait for."""


class EngineCore:
    """Steps a scheduler and a model runner; for one thread.

    Args:
        deliver: hands the events that there are to their readers.
        clock: what submission times are by.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        runner: ModelRunner,
        deliver: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._scheduler = scheduler
        self._runner = runner
        self._deliver = deliver
        self._clock = clock
        self._collector: IdleCollector | None = None
        self._idle_since: float | None = None

    def collect_when_idle(self, collector: IdleCollector) -> None:
        """Has full garbage collections run between steps, when there is nothing else to do."""
        self._collector = collector

    def step(self) -> bool:
        """Runs one step; False if there was nothing to do.

        A fault of the runner ends no more requests than it happens to. EngineDeadError, and faults
        of the scheduler itself, are raised.
        """
        step = self._scheduler.schedule()
        if step is not None:
            try:
                result = self._runner.run(step.batch, overlap=lambda: self._overlap(step))
            except EngineDeadError:
                raise
            except Exception as error:
                self._isolate(step, error)
            else:
                self._scheduler.commit(step, result)
        if step is None or self._scheduler.idle:
            self._deliver_events()  # no next step to overlap with
        if step is not None:
            self._idle_since = None
            if self._collector is not None:
                self._collector.collect(idle=False)
        return step is not None

    def pause_s(self) -> float | None:
        """How long to sleep after a step that did nothing; None: until something is posted."""
        if not self._scheduler.idle:
            return 0.001
        if self._scheduler.num_compiling:
            return 0.02  # they may have deadlines
        wants_all = self._collector is not None and self._collector.wants_all
        return _LONG_IDLE_S if wants_all else None

    def prepare_ahead(self) -> bool:
        """Does work in idle time that later steps would wait for; False if nothing is left."""
        if not self._scheduler.idle:
            return False
        return self._runner.prepare_ahead() or self._collect_garbage()

    def _collect_garbage(self) -> bool:
        collector, now = self._collector, time.monotonic()
        if collector is None:
            return False
        if self._idle_since is None:
            self._idle_since = now
        if collector.wants_all and now - self._idle_since >= _LONG_IDLE_S:
            collector.collect_all()
        return collector.collect(idle=True)

    def add_compiled(self, sequence: Sequence, grammar: Future[CompiledGrammar]) -> None:
        """Queues a sequence whose grammar is compiled, or releases it if that has failed."""
        if sequence.state is SequenceState.FINISHED:
            return
        sequence.grammar_s = self._clock() - sequence.submit_time
        try:
            sequence.matcher = grammar.result().matcher()
        except CancelledError:
            self._scheduler.release(sequence, EngineDeadError("the engine has been closed"))
        except Exception as error:
            self._scheduler.release(sequence, error)
        else:
            self._scheduler.add(sequence)

    def release_all(self, sequences: Iterable[Sequence], reason: RametError) -> None:
        """Ends sequences with one error, also after a fault of the scheduler."""
        for sequence in sequences:
            try:
                self._scheduler.release(sequence, reason)
            except Exception:  # its bookkeeping is broken; it has got its terminal event
                logger.exception("request %s was not released", sequence.request.request_id)

    def _overlap(self, step: Step) -> None:
        """The host's work during a step: its masks, and the events of the step before."""
        step.write_masks()
        self._deliver_events()

    def _deliver_events(self) -> None:
        try:
            self._deliver()
        except Exception as error:  # not a fault of the step or of any request
            raise EngineDeadError("delivering the step's events failed") from error

    def _isolate(self, step: Step, error: Exception) -> None:
        """After a fault, runs each row alone, so that only those that fail again are ended.

        No row is released before all are computed: one may copy from another's page.
        """
        logger.error("a step of %d rows failed", len(step.rows), exc_info=error)
        if len(step.rows) == 1:
            self._scheduler.fail(step, error)
            return
        outcomes: list[tuple[Step, StepResult | Exception]] = []
        for alone in self._scheduler.split(step):
            try:
                outcomes.append((alone, self._runner.run(alone.batch, overlap=alone.write_masks)))
            except EngineDeadError:
                raise
            except Exception as fault:
                outcomes.append((alone, fault))
        for alone, outcome in outcomes:
            if isinstance(outcome, Exception):
                self._scheduler.fail(alone, outcome)
            else:
                self._scheduler.commit(alone, outcome)

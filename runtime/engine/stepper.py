"""One step of the engine, and what a fault in it touches."""

from __future__ import annotations

import logging
from typing import Protocol

from ramet.runtime.api.batch import (
    EmbeddingRunner,
    Float32Array,
    Meanwhile,
    ModelRunner,
    SamplingRows,
    SamplingRunner,
    StepResult,
)
from ramet.runtime.api.errors import EngineDeadError
from ramet.runtime.scheduler import Scheduler, Step

logger = logging.getLogger("ramet.engine")


class TokenSampler(Protocol):
    """Picks a token a row."""

    def sample(self, logits: Float32Array, rows: SamplingRows) -> StepResult: ...


class Stepper:
    """Runs the scheduler's steps on a runner and a sampler; None: the runner's own."""

    def __init__(
        self,
        scheduler: Scheduler,
        runner: ModelRunner | SamplingRunner,
        sampler: TokenSampler | None,
    ) -> None:
        self._scheduler = scheduler
        self._runner = runner
        self._sampler = sampler
        # Whether an object has all of a protocol takes long to tell: it is told once.
        self._choosing = runner if isinstance(runner, SamplingRunner) else None
        self._embedding = runner if isinstance(runner, EmbeddingRunner) else None

    def step(self, meanwhile: Meanwhile = lambda: None) -> bool:
        """One step; False if there was nothing to do. ``meanwhile`` is done while the model reads
        the step's tokens, unless that fails.

        EngineDeadError, and faults of the scheduler itself, are the caller's; others end no more
        than the requests that they happen to.
        """
        step = self._scheduler.schedule()
        if step is None:
            return False
        try:
            result = self._compute(step, meanwhile)
        except EngineDeadError:
            raise
        except Exception as error:
            self._isolate(step, error)
        else:
            self._scheduler.commit(step, result)
        return True

    def _compute(self, step: Step, meanwhile: Meanwhile = lambda: None) -> StepResult:
        batch = step.batch

        def besides() -> None:
            step.write_masks()
            try:
                meanwhile()
            except Exception as error:  # no fault of the step's
                raise EngineDeadError("what a step has given can't be handed on") from error

        if self._sampler is None:
            assert self._choosing is not None
            result = self._choosing.run_and_sample(batch, besides)
        else:
            logits = self._runner.run(batch, besides)
            result = self._sampler.sample(logits, batch.sampling)
        if len(batch.hidden_tokens):
            assert self._embedding is not None
            result.hidden_states = self._embedding.hidden_states()
        return result

    def _isolate(self, step: Step, error: Exception) -> None:
        """After a fault, computes each row alone, so that only those that can't be fail.

        No row is released before all are computed: one may copy from another's page.
        """
        logger.error("a step of %d rows failed", len(step.rows), exc_info=error)
        if len(step.rows) == 1:
            self._scheduler.fail(step, error)
            return
        outcomes: list[tuple[Step, StepResult | Exception]] = []
        for alone in self._scheduler.split(step):
            try:
                outcomes.append((alone, self._compute(alone)))
            except EngineDeadError:
                raise
            except Exception as fault:
                outcomes.append((alone, fault))
        for alone, outcome in outcomes:
            if isinstance(outcome, Exception):
                self._scheduler.fail(alone, outcome)
            else:
                self._scheduler.commit(alone, outcome)

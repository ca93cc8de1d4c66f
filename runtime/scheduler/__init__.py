"""Continuous batching over the page pool: sequences, order, pages, batches, output."""

from ramet.runtime.scheduler.batching.steps import Step
from ramet.runtime.scheduler.commit.output import End
from ramet.runtime.scheduler.queue.config import SchedulerConfig
from ramet.runtime.scheduler.scheduler import Scheduler
from ramet.runtime.scheduler.sequence.sequence import Sequence, SequenceState

__all__ = ["End", "Scheduler", "SchedulerConfig", "Sequence", "SequenceState", "Step"]

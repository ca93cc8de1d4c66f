"""Continuous batching over the page pool: sequences, order, pages, batches, output."""

from ramet.runtime.scheduler.config import SchedulerConfig
from ramet.runtime.scheduler.output import End
from ramet.runtime.scheduler.scheduler import Scheduler
from ramet.runtime.scheduler.sequence import Sequence, SequenceState
from ramet.runtime.scheduler.steps import Step

__all__ = ["End", "Scheduler", "SchedulerConfig", "Sequence", "SequenceState", "Step"]

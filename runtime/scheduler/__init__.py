"""Continuous batching over the page pool: sequences, order, pages, batches, output.

Names are imported on first use, so that reading a configuration loads none of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ramet.runtime.scheduler.batching.steps import Step
    from ramet.runtime.scheduler.commit.output import End
    from ramet.runtime.scheduler.queue.config import SchedulerConfig
    from ramet.runtime.scheduler.scheduler import Scheduler
    from ramet.runtime.scheduler.sequence.sequence import Sequence, SequenceState

__all__ = ["End", "Scheduler", "SchedulerConfig", "Sequence", "SequenceState", "Step"]

_MODULES = {
    "End": ".commit.output",
    "Scheduler": ".scheduler",
    "SchedulerConfig": ".queue.config",
    "Sequence": ".sequence.sequence",
    "SequenceState": ".sequence.sequence",
    "Step": ".batching.steps",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name], __name__), name)
    globals()[name] = value
    return value

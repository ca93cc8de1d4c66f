"""Runs full garbage collections while the process is idle."""

from __future__ import annotations

import gc
import time

from ramet.runtime.engine.monitoring.gc_pauses import GC_PAUSES

_YOUNG, _MIDDLE = 700, 10
_NEVER = 1 << 30
"""Thresholds of the three generations: the oldest is never collected by itself."""

_DUE = 10
_OVERDUE = 2000
"""Collections of the middle generation since the last full one: from the first number on a full one
runs when the process is idle, from the second on in any case. Each stands for about 7,000 objects
that were made and not freed by their reference counts."""

_LONG_S = 0.0025
"""Objects that survive a longer collection are left out of later ones."""

_MOST_SURVIVORS = 200_000
"""Once this many objects are left out, all objects are examined again."""


class IdleCollector:
    """Takes over the garbage collection of this process.

    Young generations are collected as always, which is short. The caller, which knows when the
    process is idle, runs full collections; what survives a long one is frozen, so that the next is
    short. ``collect_all``, which takes longer, finds garbage among frozen objects, such as dropped
    grammars.
    """

    def __init__(self) -> None:
        self._num_frozen = 0

    def start(self) -> None:
        """Freezes what there is, and enables collections."""
        gc.freeze()
        self._num_frozen = gc.get_freeze_count()
        gc.set_threshold(_YOUNG, _MIDDLE, _NEVER)
        GC_PAUSES.reset()
        gc.enable()

    def collect(self, *, idle: bool) -> bool:
        """Runs a full collection if one is due; returns whether it did."""
        if gc.get_count()[2] < (_DUE if idle else _OVERDUE):
            return False
        began = time.perf_counter()
        gc.collect()
        if time.perf_counter() - began > _LONG_S:
            gc.freeze()
        return True

    def exclude_survivors(self) -> None:
        """Leaves what there is now out of later collections, once the young are collected.

        For a compiling thread that has made a grammar: its many objects stay, and no step has to
        wait while a full collection looks at them.
        """
        gc.collect(1)
        gc.freeze()

    @property
    def wants_all(self) -> bool:
        """Whether ``collect_all`` is due, at a time without any work."""
        growth = gc.get_freeze_count() - self._num_frozen
        return growth > max(_MOST_SURVIVORS, self._num_frozen // 2)

    def collect_all(self) -> None:
        """Runs a full collection over frozen objects, too, and freezes what survives."""
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._num_frozen = gc.get_freeze_count()

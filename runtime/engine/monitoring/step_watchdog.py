"""Logs the stacks of all threads when a step hangs."""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Callable

logger = logging.getLogger("ramet.engine")

_INTERVAL_S = 1.0


class StepWatchdog:
    """A thread that watches how long the running step takes; each hanging step is logged once.

    Args:
        step_s: the age of the running step, 0 if none runs.
        limit_s: the age at which a step is logged.
    """

    def __init__(
        self, step_s: Callable[[], float], limit_s: float, interval_s: float = _INTERVAL_S
    ) -> None:
        self._step_s = step_s
        self._limit_s = limit_s
        self._interval_s = interval_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ramet-watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        logged_s = 0.0
        while not self._stopped.wait(self._interval_s):
            age_s = self._step_s()
            if age_s < logged_s:
                logged_s = 0.0  # another step
            if age_s > self._limit_s and not logged_s:
                logger.error("a step has run for %.0f s\n%s", age_s, _stacks())
            if age_s > self._limit_s:
                logged_s = age_s


def _stacks() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sys._current_frames().items():
        if ident != threading.get_ident():
            parts.append(f"thread {names.get(ident, ident)}:\n")
            parts += traceback.format_stack(frame)
    return "".join(parts)

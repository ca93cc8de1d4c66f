"""A step that hangs is logged once, with the stacks of all threads."""

from __future__ import annotations

import logging
import threading

from ramet.runtime.engine.monitoring.step_watchdog import StepWatchdog


class Ages:
    """Step ages, one a look; says when all were looked at."""

    def __init__(self, *ages: float) -> None:
        self._ages = list(ages)
        self.done = threading.Event()

    def __call__(self) -> float:
        if not self._ages:
            self.done.set()
            return 0.0
        return self._ages.pop(0)


def test_each_hanging_step_is_logged_once(caplog) -> None:
    ages = Ages(1.0, 6.0, 7.0, 8.0, 0.5, 6.5, 7.5)
    watchdog = StepWatchdog(ages, 5.0, interval_s=0.001)
    with caplog.at_level(logging.ERROR, logger="ramet.engine"):
        watchdog.start()
        assert ages.done.wait(20)
        watchdog.stop()
    messages = [each.getMessage() for each in caplog.records]
    assert [each.partition("\n")[0] for each in messages] == [
        "a step has run for 6 s",
        "a step has run for 6 s",
    ]
    assert "MainThread" in messages[0]
    assert "test_each_hanging_step_is_logged_once" in messages[0]

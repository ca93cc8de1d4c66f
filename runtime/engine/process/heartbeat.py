"""Heartbeats of the engine's process: how long the step that runs has taken."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ramet.runtime.engine.process.messages import Heartbeat

_INTERVAL_S = 0.5


class HeartbeatThread:
    """Sends a heartbeat twice a second; the engine is loading until ``watch`` is called."""

    def __init__(self, send: Callable[[Heartbeat], None]) -> None:
        self._send = send
        self._step_s: Callable[[], float] | None = None
        self._is_compiling: Callable[[], bool] = lambda: True
        threading.Thread(target=self._run, name="ramet-heartbeat", daemon=True).start()

    def watch(self, step_s: Callable[[], float]) -> None:
        """Reports the age of the running step from now on."""
        from ramet.jit import is_compiling  # the callers' side loads no compiler

        self._is_compiling = is_compiling
        self._step_s = step_s

    def _run(self) -> None:
        pause = threading.Event()
        prepared = time.monotonic()
        while not pause.wait(_INTERVAL_S):
            step_s, now = self._step_s, time.monotonic()
            preparing = step_s is None or self._is_compiling()
            if preparing:
                prepared = now  # a step's age counts from the last compilation
            age_s = 0.0 if step_s is None else min(step_s(), now - prepared)
            try:
                self._send(Heartbeat(age_s, preparing))
            except OSError:  # the parent has ended
                return

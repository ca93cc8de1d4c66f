"""Whether the engine's process makes progress, judged by its heartbeats."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from ramet.runtime.api.errors import EngineUnresponsiveError

logger = logging.getLogger("ramet.engine")

UNRESPONSIVE_S = 2.0
"""After this time without progress, health checks fail."""

_TICK_S = 0.25
_PREPARING_FACTOR = 10
"""Loading and compiling can hold heartbeats up: the process gets this many times longer."""


class Liveness:
    """The time since the engine's process last made progress.

    Time in which this process itself didn't run, because it was stopped or the machine slept,
    doesn't count.

    Args:
        timeout_s: time without progress after which ``on_timeout`` is called.
        on_tick: called several times a second.
        on_timeout: must end the process; called again until ``start`` is.
    """

    def __init__(
        self, timeout_s: float, on_tick: Callable[[], None], on_timeout: Callable[[], None]
    ) -> None:
        self._timeout_s = timeout_s
        self._on_tick = on_tick
        self._on_timeout = on_timeout
        self._silent_s = 0.0
        self._step_s = 0.0
        self._preparing = True
        self._has_timed_out = False
        self._is_watching = False
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ramet-engine-liveness", daemon=True)
        self._thread.start()

    def start(self) -> None:
        """Notes that a process is started: it loads the model first."""
        self._silent_s, self._step_s, self._preparing = 0.0, 0.0, True
        self._has_timed_out = False
        self._is_watching = True

    def suspend(self) -> None:
        """Judges nothing until ``start``: there is no process."""
        self._is_watching = False
        self._silent_s, self._step_s = 0.0, 0.0

    def beat(self, step_s: float, *, preparing: bool) -> None:
        """Notes a heartbeat.

        Args:
            step_s: the age of the step that runs.
            preparing: the engine loads the model or compiles kernels.
        """
        self._silent_s, self._step_s, self._preparing = 0.0, step_s, preparing

    @property
    def stalled_s(self) -> float:
        """Seconds without progress; a step's age doesn't count while it loads or compiles."""
        return self._silent_s + (0.0 if self._preparing else self._step_s)

    @property
    def is_unresponsive(self) -> bool:
        """Whether a started engine has made no progress for a while."""
        return self.stalled_s > UNRESPONSIVE_S

    @property
    def error(self) -> EngineUnresponsiveError | None:
        """The error for calls while the engine is unresponsive."""
        if not self.is_unresponsive:
            return None
        return EngineUnresponsiveError(
            f"the engine has made no progress for {self.stalled_s:.0f} s"
        )

    @property
    def timeout_error(self) -> EngineUnresponsiveError | None:
        """The error for the requests of a process that was killed for making no progress."""
        if not self._has_timed_out:
            return None
        return EngineUnresponsiveError(
            f"the engine made no progress for {self._timeout_s:g} s and is started again"
        )

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        last = time.monotonic()
        while not self._stopped.wait(_TICK_S):
            now = time.monotonic()
            if self._is_watching:
                self._silent_s += min(now - last, 2 * _TICK_S)
            last = now
            self._on_tick()
            limit_s = self._timeout_s * (_PREPARING_FACTOR if self._preparing else 1)
            if self.stalled_s > limit_s:
                if not self._has_timed_out:
                    logger.critical(
                        "the engine has made no progress for %.0f s: killed", self.stalled_s
                    )
                self._has_timed_out = True
                self._on_timeout()

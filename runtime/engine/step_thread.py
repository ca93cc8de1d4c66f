"""The thread that scheduler and cache belong to."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

logger = logging.getLogger("ramet.engine")

T = TypeVar("T")


class StepThread:
    """Alternates posted commands and steps; sleeps while there is nothing to do.

    Args:
        step: one step; False if there was nothing to do. What it raises ends the thread.
        idle_work: work in small pieces; False once none is left.
        pause_s: how long to sleep after a step that did nothing: None until the next command.
        on_end: called last, with the error that ended the thread, or None after ``stop``.
    """

    def __init__(
        self,
        step: Callable[[], bool],
        idle_work: Callable[[], bool],
        pause_s: Callable[[], float | None],
        on_end: Callable[[Exception | None], None],
    ) -> None:
        self._step = step
        self._idle_work = idle_work
        self._pause_s = pause_s
        self._on_end = on_end
        self._commands: deque[Callable[[], None]] = deque()
        self._wake = threading.Event()
        self._stopping = False
        self._busy_since: float | None = None
        self._thread = threading.Thread(target=self._run, name="ramet-engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread after the current step, and waits for it."""
        self._stopping = True
        self._wake.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def post(self, command: Callable[[], None]) -> None:
        """Has the thread run ``command`` between two steps."""
        self._commands.append(command)
        self._wake.set()

    def wake(self) -> None:
        """Wakes the thread."""
        self._wake.set()

    def step_s(self) -> float:
        """Seconds since the thread last got from a step to the next; 0 while it sleeps."""
        since = self._busy_since
        return 0.0 if since is None else time.monotonic() - since

    def ask(self, question: Callable[[], T]) -> T:
        """Runs ``question`` between two steps, and returns its answer or raises its error."""
        answer: Future[T] = Future()

        def command() -> None:
            try:
                answer.set_result(question())
            except BaseException as error:
                answer.set_exception(error)

        self.post(command)
        while self._thread.is_alive():
            try:
                return answer.result(timeout=0.2)
            except TimeoutError:
                if answer.done():
                    return answer.result()
        return answer.result() if answer.done() else question()

    def _run(self) -> None:
        fault: Exception | None = None
        try:
            while not self._stopping:
                self._busy_since = time.monotonic()
                self._wake.clear()
                while self._commands:
                    self._commands.popleft()()
                if self._step() or self._commands or self._stopping or self._idle_work():
                    continue
                self._busy_since = None
                self._wake.wait(self._pause_s())
        except Exception as error:
            logger.critical("the engine has died", exc_info=error)
            fault = error
        self._busy_since = None
        self._on_end(fault)

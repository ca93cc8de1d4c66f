"""Threads for long work, shared fairly among its owners."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

_Job = tuple[Future[Any], Callable[[], Any]]


class WorkPool:
    """Runs work in threads; owners take turns, and none has all threads.

    Each owner's work starts in order. Where several owners have work, the next piece is of the
    owner that has waited longest since its last one began; an owner runs at most all threads but
    one, so that another's first piece starts immediately.

    Args:
        num_threads: at least two.
    """

    def __init__(self, num_threads: int, name: str) -> None:
        self._num_threads = num_threads
        self._name = name
        self._changed = threading.Condition()
        self._waiting: dict[str, deque[_Job]] = {}
        self._running: dict[str, int] = {}
        self._num_started = 0

    def submit(self, owner: str, work: Callable[[], T]) -> Future[T]:
        """Queues work; cancelling its future removes it if it hasn't begun."""
        future: Future[T] = Future()
        with self._changed:
            self._waiting.setdefault(owner, deque()).append((future, work))
            if self._num_started < self._num_threads:
                self._num_started += 1
                name = f"{self._name}-{self._num_started}"
                threading.Thread(target=self._run, name=name, daemon=True).start()
            self._changed.notify()
        return future

    def _run(self) -> None:
        while True:
            with self._changed:
                while (owner := self._next_owner()) is None:
                    self._changed.wait()
                queue = self._waiting.pop(owner)
                future, work = queue.popleft()
                if queue:
                    self._waiting[owner] = queue  # behind all others
                self._running[owner] = self._running.get(owner, 0) + 1
            try:
                if future.set_running_or_notify_cancel():
                    _run_job(future, work)
            finally:
                del future, work
                with self._changed:
                    self._running[owner] -= 1
                    if not self._running[owner]:
                        del self._running[owner]
                    self._changed.notify_all()

    def _next_owner(self) -> str | None:
        most = self._num_threads - 1
        waiting = (each for each in self._waiting if self._running.get(each, 0) < most)
        return next(waiting, None)


def _run_job(future: Future[Any], work: Callable[[], Any]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:
        future.set_exception(error)

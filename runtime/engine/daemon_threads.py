"""A thread pool that doesn't keep the process alive."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class DaemonThreads:
    """Runs tasks in order, ``count`` at a time, like ``ThreadPoolExecutor``.

    Python joins that one's threads at exit; it doesn't wait for these.

    Args:
        name: the threads' name.
        begin: what each thread does first.
    """

    def __init__(self, count: int, name: str, begin: Callable[[], None] = lambda: None) -> None:
        self._count, self._name, self._begin = count, name, begin
        self._tasks: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]
        self._tasks = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []  # none before there is a task
        self._closed = False

    def submit(self, task: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Runs a task in a thread. After ``close`` the future is cancelled."""
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                future.cancel()
                return future
            self._tasks.put((future, partial(task, *args, **kwargs)))
            if not self._threads:
                self._threads = [self._start(number) for number in range(self._count)]
        return future

    def close(self) -> None:
        """Cancels tasks that have not begun, and waits for those that have."""
        with self._lock:
            self._closed = True
            with contextlib.suppress(queue.Empty):
                while (waiting := self._tasks.get_nowait()) is not None:
                    waiting[0].cancel()
            for _ in self._threads:
                self._tasks.put(None)
        for thread in self._threads:
            thread.join()

    def _start(self, number: int) -> threading.Thread:
        name = f"{self._name}-{number}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        thread.start()
        return thread

    def _work(self) -> None:
        self._begin()
        while (task := self._tasks.get()) is not None:
            future, work = task
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

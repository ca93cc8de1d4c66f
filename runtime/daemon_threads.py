"""Threads for work that a program doesn't wait for when it ends."""

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
    """Does tasks in turn, ``count`` at a time, like ``ThreadPoolExecutor``; but Python joins that
    one's threads before it ends, and these it leaves.

    Args:
        name: the threads' name.
        begin: what each thread does first.
    """

    def __init__(self, count: int, name: str, begin: Callable[[], None] = lambda: None) -> None:
        self._tasks: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]
        self._tasks = queue.SimpleQueue()
        self._begin = begin
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True)
            for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, task: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Has a thread do a task; its result, or what it raises. After ``close``, nothing is."""
        future: Future[T] = Future()
        self._tasks.put((future, partial(task, *args, **kwargs)))
        return future

    def close(self) -> None:
        """Cancels what has not begun, and waits for what has."""
        with contextlib.suppress(queue.Empty):
            while True:
                waiting = self._tasks.get_nowait()
                if waiting is not None:
                    waiting[0].cancel()
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.join()

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

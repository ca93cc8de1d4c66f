"""The answers that callers of an engine in another process still wait for."""

from __future__ import annotations

import contextlib
import itertools
from concurrent.futures import Future, InvalidStateError
from typing import Any


class PendingAnswers:
    """Futures of answers, by the numbers of their questions. Safe to use from any thread."""

    def __init__(self) -> None:
        self._futures: dict[int, Future[Any]] = {}
        self._numbers = itertools.count()

    def add(self) -> tuple[int, Future[Any]]:
        """A number for a question, and where its answer will be."""
        number, future = next(self._numbers), Future[Any]()
        self._futures[number] = future
        return number, future

    def remove(self, number: int) -> bool:
        """Forgets a question; returns whether its answer was still to come."""
        return self._futures.pop(number, None) is not None

    def settle(self, number: int, value: Any, error: Exception | None) -> None:
        """Sets an answer; one to a question that was removed is dropped."""
        future = self._futures.pop(number, None)
        if future is not None:
            _settle(future, value, error)

    def fail_all(self, error: Exception) -> None:
        """Ends every question in ``error``."""
        while self._futures:
            _, future = self._futures.popitem()
            _settle(future, None, error)


def _settle(future: Future[Any], value: Any, error: Exception | None) -> None:
    with contextlib.suppress(InvalidStateError):  # cancelled by its caller
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

"""All live requests by id, from their submission to their terminal event."""

from __future__ import annotations

import threading

from ramet.runtime.api.errors import InvalidParameterError, QueueFullError, RametError
from ramet.runtime.api.memory import MemoryPart
from ramet.runtime.engine.requests.admission import prompt_bytes
from ramet.runtime.scheduler import Scheduler, Sequence


class RequestRegistry:
    """Registers requests, up to a limit, until they have ended.

    Safe from any thread, except ``release``.

    Args:
        scheduler: releases the sequences; it says how many of them run.
        max_waiting: most requests that don't run yet.
        memory: counts their prompts.
    """

    def __init__(self, scheduler: Scheduler, max_waiting: int, memory: MemoryPart) -> None:
        self._scheduler = scheduler
        self._max_waiting = max_waiting
        self._memory = memory
        self._lock = threading.Lock()
        self._live: dict[str, Sequence] = {}
        self._closed: RametError | None = None

    @property
    def num_unscheduled(self) -> int:
        """Requests that are not in the scheduler's queue yet: they wait for their grammars."""
        scheduler = self._scheduler
        return max(0, len(self._live) - scheduler.num_running - scheduler.num_waiting)

    def register(self, sequence: Sequence) -> None:
        """Registers a request: from here on it gets its one terminal event.

        Raises:
            QueueFullError, MemoryFullError: too many requests, or too long ones, are waiting.
        """
        request_id = sequence.request.request_id
        with self._lock:
            if self._closed is not None:
                raise self._closed
            if request_id in self._live:
                raise InvalidParameterError(
                    f"a request {request_id!r} is running already", param="request_id"
                )
            excess = len(self._live) - self._scheduler.num_running - self._max_waiting + 1
            if excess > 0:
                raise QueueFullError(
                    f"the queue is full: {self._max_waiting} requests are waiting",
                    retry_after_s=self._scheduler.stats.expected_wait_s(excess),
                )
            self._memory.take(prompt_bytes(sequence.request))
            self._live[request_id] = sequence

    def release(self, request_id: str, reason: RametError) -> None:
        """Ends a request on the scheduler's thread; unknown and ended ones are ignored."""
        sequence = self._live.get(request_id)
        if sequence is not None:
            self._scheduler.release(sequence, reason)

    def remove(self, sequence: Sequence) -> None:
        """Removes a request that has ended."""
        with self._lock:
            if self._live.pop(sequence.request.request_id, None) is not None:
                self._memory.give_back(prompt_bytes(sequence.request))

    def close(self, reason: RametError) -> None:
        """Refuses all further requests with ``reason``; only the first call counts."""
        with self._lock:
            self._closed = self._closed or reason

    def live(self) -> list[Sequence]:
        """All live requests."""
        with self._lock:
            return list(self._live.values())

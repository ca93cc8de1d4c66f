"""The requests that the engine's process has not ended yet, with their streams and deadlines."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from ramet.runtime.api.errors import DeadlineExceededError, InvalidParameterError, RametError
from ramet.runtime.api.events import Event, Failed, Finished, Usage
from ramet.runtime.api.memory import MemoryPart
from ramet.runtime.engine.requests.admission import prompt_bytes
from ramet.runtime.engine.requests.request_stream import RequestStream, Wakeups

_DEADLINE_SLACK_S = 0.5
"""The engine keeps deadlines; those that it misses by more than this are kept here."""


class PendingRequests:
    """Each request ends once: by the engine's last event, or by ``fail``. Safe from any thread.

    Args:
        lock: its owner's, held while streams change.
    """

    def __init__(self, lock: threading.RLock) -> None:
        self.wakeups = Wakeups()
        self._lock = lock
        self._streams: dict[str, RequestStream] = {}
        self._deadlines: dict[str, float] = {}
        self._memory: MemoryPart | None = None

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._streams

    def limit_prompts(self, memory: MemoryPart) -> None:
        """Counts prompts from now on."""
        self._memory = memory

    def add(self, stream: RequestStream) -> None:
        """Adds a request; its deadline counts from now.

        Raises:
            InvalidParameterError: one with its id is running.
            MemoryFullError: the memory for prompts is full.
        """
        request = stream.request
        if request.request_id in self._streams:
            raise InvalidParameterError(
                f"a request {request.request_id!r} is running already", param="request_id"
            )
        if self._memory is not None:
            self._memory.take(prompt_bytes(request))
        self._streams[request.request_id] = stream
        if request.deadline_s is not None:
            deadline = time.monotonic() + request.deadline_s + _DEADLINE_SLACK_S
            self._deadlines[request.request_id] = deadline

    def deliver(self, events: Iterable[tuple[str, Event]]) -> None:
        """Hands a step's events to their streams; those of ended requests are dropped."""
        with self._lock:
            for request_id, event in events:
                stream = self._streams.get(request_id)
                if isinstance(event, Finished | Failed):
                    self.remove(request_id)
                if stream is not None:
                    stream.push(event)
            self.wakeups.flush()

    def fail(self, request_ids: Iterable[str], error: RametError) -> None:
        """Ends requests with an error, without the engine's answer."""
        with self._lock:
            for request_id in request_ids:
                stream = self._streams.get(request_id)
                self.remove(request_id)
                if stream is not None:
                    usage = Usage(prompt_tokens=len(stream.request.prompt_token_ids))
                    stream.push(Failed(error, usage))
            self.wakeups.flush()

    def fail_all(self, error: RametError) -> None:
        """Ends every request."""
        with self._lock:
            self.fail(list(self._streams), error)

    def fail_late(self) -> list[str]:
        """Ends the requests whose deadlines the engine has missed; returns their ids."""
        now = time.monotonic()
        with self._lock:
            late = [each for each, deadline in self._deadlines.items() if deadline < now]
            if late:
                self.fail(late, DeadlineExceededError("the request's deadline has passed"))
        return late

    def remove(self, request_id: str) -> None:
        """Forgets a request, which ends without an event from here."""
        stream = self._streams.pop(request_id, None)
        if stream is not None and self._memory is not None:
            self._memory.give_back(prompt_bytes(stream.request))
        self._deadlines.pop(request_id, None)

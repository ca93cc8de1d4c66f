"""One request's events, sync or async, as ``Engine.submit`` returns them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from ramet.runtime.api.batch import Float32Array
from ramet.runtime.api.errors import InvariantError, SlowReaderError
from ramet.runtime.api.events import (
    Embedding,
    Event,
    Failed,
    Finished,
    FinishReason,
    PromptLogprobs,
    TextDelta,
    Timings,
    TokenInfo,
    Usage,
)
from ramet.runtime.api.fork_guard import ForkGuard
from ramet.runtime.api.request import Request
from ramet.runtime.engine.requests.unread_answers import UnreadAnswers

_Waiter = TypeVar("_Waiter", threading.Event, "asyncio.Future[None]")


@dataclass(frozen=True, slots=True)
class Completion:
    """A request's whole output."""

    text: str
    tokens: tuple[TokenInfo, ...]
    finish_reason: FinishReason
    matched_stop: str | int | None
    usage: Usage
    timings: Timings
    prompt_logprobs: PromptLogprobs | None = None
    embedding: Float32Array | None = None

    @property
    def token_ids(self) -> list[int]:
        """The generated tokens' ids."""
        return [token.token_id for token in self.tokens]


class Wakeups:
    """Readers to wake at the end of a step: one call into each event loop, however many wait."""

    def __init__(self) -> None:
        self._threads: list[threading.Event] = []
        self._futures: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}

    def add(self, waiter: threading.Event | asyncio.Future[None]) -> None:
        if isinstance(waiter, threading.Event):
            self._threads.append(waiter)
        else:
            self._futures.setdefault(waiter.get_loop(), []).append(waiter)

    def flush(self) -> None:
        """Wakes all waiters."""
        for event in self._threads:
            event.set()
        self._threads.clear()
        futures, self._futures = self._futures, {}
        for loop, waiters in futures.items():
            try:
                loop.call_soon_threadsafe(_set_all, waiters)
            except RuntimeError:  # that loop has been closed, and its readers with it
                continue


def _set_all(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        if not waiter.done():
            waiter.set_result(None)


class RequestStream:
    """A request's events in order; the last is ``Finished`` or ``Failed``.

    Iterate it (``for`` or ``async for``), take what is ready (``take``), or wait for all of it:
    ``result()``, or ``await stream``, which raise what ``Failed`` carries. Leaving ``with`` or
    ``async with`` early aborts the request. An error in the reader affects no other request.

    Each event is read once: several readers share them. ``result()`` is always the whole output,
    also after its events were read, and may be called again; but not after ``limit_unread``.
    """

    def __init__(self, request: Request, *, abort: Callable[[str], None], wakeups: Wakeups) -> None:
        self.request = request
        self._abort = abort
        self._wakeups = wakeups
        self._fork_guard = ForkGuard()
        self._lock = threading.Lock()
        self._events: deque[Event] = deque()
        self._waiters: list[threading.Event | asyncio.Future[None]] = []
        self._last: Finished | Failed | None = None
        self._collector: Collector | None = Collector()
        self._unread: UnreadAnswers | None = None
        self._is_dropped = False

    @property
    def request_id(self) -> str:
        return self.request.request_id

    @property
    def ended(self) -> bool:
        """Whether the request has ended; its events may still wait to be read."""
        return self._last is not None

    def push(self, event: Event) -> None:
        """For the engine: adds an event; the reader wakes when the engine flushes its wake-ups."""
        with self._lock:
            if self._is_dropped:
                return
            if self._last is not None:
                raise InvariantError(f"{self.request_id}: an event after the terminal one")
            if isinstance(event, Finished | Failed):
                self._last = event
            self._events.append(event)
            waiters, self._waiters = self._waiters, []
            slowest = None if self._unread is None else self._unread.add(self, event)
        for waiter in waiters:
            self._wakeups.add(waiter)
        if slowest is not None:
            slowest.drop()

    def limit_unread(self, unread: UnreadAnswers) -> None:
        """Counts what waits for a reader, from now on, and keeps nothing that has been read."""
        self._unread = unread
        self._collector = None

    def drop(self, error: SlowReaderError) -> None:
        """Replaces the unread events by a failure, and aborts the request."""
        with self._lock:
            if not self._events:
                return
            self._is_dropped = True
            usage = Usage(prompt_tokens=len(self.request.prompt_token_ids))
            self._last = Failed(error, usage)
            self._events.clear()
            self._events.append(self._last)
        self._abort(self.request_id)

    def abort(self) -> None:
        """Ends the request within a step; its stream then ends in ``Failed``."""
        with self._lock:
            if self._unread is not None:
                self._unread.remove(self)
                self._unread = None
        self._abort(self.request_id)

    # -- reading -------------------------------------------------------------------------------

    def take(self) -> list[Event]:
        """All events that are ready now, without waiting."""
        self._require_end_or_owner()
        with self._lock:
            events = list(self._events)
            self._events.clear()
            for event in events:
                self._note_read(event)
        return events

    def _note_read(self, event: Event) -> None:
        if self._collector is not None:
            self._collector.add(event)
        if self._unread is not None and not self._events:
            self._unread.remove(self)

    def _pop(self, new_waiter: Callable[[], _Waiter]) -> tuple[Event | None, _Waiter | None]:
        """The next event, or a registered waiter for it, or neither if none will come."""
        with self._lock:
            if self._events:
                event = self._events.popleft()
                self._note_read(event)
                return event, None
            if self._last is not None:
                return None, None
            waiter = new_waiter()
            self._waiters.append(waiter)
            return None, waiter

    def _require_end_or_owner(self) -> None:
        """Refuses to read a live stream in a forked process."""
        if self._last is None:
            self._fork_guard.require(f"the stream of request {self.request_id}")

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        return self._next(None)

    def _next(self, deadline: float | None) -> Event:
        self._require_end_or_owner()
        while True:
            event, ready = self._pop(threading.Event)
            if event is not None:
                return event
            if ready is None:
                raise StopIteration
            remaining = None if deadline is None else deadline - time.monotonic()
            if not ready.wait(remaining):
                raise TimeoutError(f"{self.request_id} has not ended in time")

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        self._require_end_or_owner()
        while True:
            event, ready = self._pop(asyncio.get_running_loop().create_future)
            if event is not None:
                return event
            if ready is None:
                raise StopAsyncIteration
            await ready

    def result(self, timeout: float | None = None) -> Completion:
        """Waits for the end and returns the whole output; raises the request's error.

        TimeoutError after ``timeout`` seconds; the request goes on.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                self._next(deadline)
            except StopIteration:
                return self._completion()

    async def aresult(self) -> Completion:
        """``result`` for asyncio; a cancelled wait aborts the request."""
        try:
            async for _ in self:
                pass
        except asyncio.CancelledError:
            self.abort()
            raise
        return self._completion()

    def _completion(self) -> Completion:
        if self._collector is None:
            raise InvariantError(f"{self.request_id}: its events are not kept")
        return self._collector.completion()

    def __await__(self) -> Generator[Any, None, Completion]:
        return self.aresult().__await__()

    def __enter__(self) -> RequestStream:
        return self

    def __exit__(self, *_: object) -> None:
        if not self.ended:
            self.abort()

    async def __aenter__(self) -> RequestStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        if not self.ended:
            self.abort()


class Collector:
    """Adds a request's events up."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._tokens: list[TokenInfo] = []
        self._prompt_logprobs: PromptLogprobs | None = None
        self._embedding: Float32Array | None = None
        self._last: Finished | Failed | None = None

    def add(self, event: Event) -> None:
        match event:
            case TextDelta():
                self._texts.append(event.text)
                self._tokens.extend(event.tokens)
            case PromptLogprobs():
                self._prompt_logprobs = event
            case Embedding():
                self._embedding = event.vector
            case _:
                self._last = event

    def completion(self) -> Completion:
        """The whole output; raises the error if the request failed."""
        last = self._last
        if last is None:
            raise InvariantError("the request has not ended")
        if isinstance(last, Failed):
            raise last.error
        return Completion(
            text="".join(self._texts),
            tokens=tuple(self._tokens),
            finish_reason=last.reason,
            matched_stop=last.matched_stop,
            usage=last.usage,
            timings=last.timings,
            prompt_logprobs=self._prompt_logprobs,
            embedding=self._embedding,
        )

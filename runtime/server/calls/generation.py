"""The requests of one HTTP call, one a choice, and their events as one stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future

from ramet.runtime.api.errors import DeadlineExceededError, RametError, RequestAbortedError
from ramet.runtime.api.events import Event, Failed, Finished
from ramet.runtime.engine.api import EventSource


class Generation:
    """Merges the events of what is added; whatever happens, none outlives this object's use.

    Events that are ready together come together, so that a slow reader costs few, large writes.
    The first request that fails fails the call: its error is raised and the others are aborted.
    """

    def __init__(
        self,
        *,
        on_end: Callable[[Finished | Failed], None],
        on_close: Callable[[], None],
    ) -> None:
        self._sources: list[EventSource] = []
        self._awaited: Future[None] | None = None
        self._on_end = on_end
        self._on_close: Callable[[], None] | None = on_close
        self._is_aborted = False
        self._reason: RametError | None = None
        self._first: tuple[int, list[Event]] | None = None
        self._merged: AsyncIterator[tuple[int, list[Event]]] | None = None

    def add(self, source: EventSource) -> None:
        """Adds the next choice's request; before ``begin``."""
        self._sources.append(source)
        if self._is_aborted:
            source.abort()

    async def wait_for(self, work: Future[None], timeout_s: float | None) -> None:
        """Waits for what requests need that are yet to be added; cancels it if the call is aborted.

        RequestAbortedError, or the reason for that; DeadlineExceededError after ``timeout_s``.
        """
        self._awaited = work
        if self._is_aborted:
            work.cancel()
        try:
            await asyncio.wait_for(asyncio.wrap_future(work), timeout_s)
        except TimeoutError:
            raise DeadlineExceededError("the request's deadline has passed") from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise self._reason or RequestAbortedError("the request was aborted") from None
        finally:
            self._awaited = None

    def abort(self, reason: RametError | None = None) -> None:
        """Aborts every request that still runs; the call fails with ``reason``."""
        self._is_aborted = True
        self._reason = self._reason or reason
        if self._awaited is not None:
            self._awaited.cancel()
        for source in self._sources:
            source.abort()

    def close(self) -> None:
        """Aborts what still runs and ends the call; harmless when repeated."""
        self.abort()
        if self._on_close is not None:
            self._on_close()
            self._on_close = None

    async def begin(self) -> None:
        """Waits for the first event, so that an early failure can still be a plain response."""
        self._merged = self._merge()
        self._first = await anext(self._merged, None)

    async def events(self) -> AsyncIterator[tuple[int, list[Event]]]:
        """Yields choice indices with their new events, until every choice has finished.

        Raises:
            RametError: a request failed; what was yielded before stands.
        """
        if self._merged is None:
            await self.begin()
        assert self._merged is not None
        try:
            if self._first is not None:
                yield self._first
            async for item in self._merged:
                yield item
        finally:
            self.close()

    async def _merge(self) -> AsyncIterator[tuple[int, list[Event]]]:
        if len(self._sources) == 1:
            async for events in self._read(self._sources[0]):
                yield 0, events
            return
        queue: asyncio.Queue[tuple[int, list[Event] | Exception]] = asyncio.Queue()
        pumps = [
            asyncio.create_task(self._pump(index, source, queue))
            for index, source in enumerate(self._sources)
        ]
        num_running = len(pumps)
        try:
            while num_running:
                index, arrived = await queue.get()
                if isinstance(arrived, Exception):
                    raise arrived
                yield index, arrived
                num_running -= isinstance(arrived[-1], Finished)
        finally:
            for pump in pumps:
                pump.cancel()

    async def _pump(
        self,
        index: int,
        source: EventSource,
        queue: asyncio.Queue[tuple[int, list[Event] | Exception]],
    ) -> None:
        """Moves one source's events to the call's queue until it ends."""
        try:
            async for events in self._read(source):
                queue.put_nowait((index, events))
        except Exception as error:
            queue.put_nowait((index, error))

    async def _read(self, source: EventSource) -> AsyncIterator[list[Event]]:
        """At least one event at a time, and all that are ready with it; a failure is raised."""
        while True:
            events = [await anext(source)]
            events += source.take()
            last = events[-1]
            if isinstance(last, Failed):
                self._on_end(last)
                if len(events) > 1:
                    yield events[:-1]
                aborted = isinstance(last.error, RequestAbortedError)
                raise self._reason if aborted and self._reason else last.error
            if isinstance(last, Finished):
                self._on_end(last)
                yield events
                return
            yield events

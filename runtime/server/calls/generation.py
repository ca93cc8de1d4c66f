"""The requests of one call, one for each choice, and their events as one stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace

from fastapi import Request as HttpRequest

from ramet.grammars.constraints import Constraint
from ramet.runtime.api.errors import (
    DeadlineExceededError,
    InvalidConstraintError,
    InvalidRequestError,
    RametError,
    RequestAbortedError,
)
from ramet.runtime.api.events import Event, Failed, Finished
from ramet.runtime.api.request import Request
from ramet.runtime.chat.param_paths import Origins, named_by_field
from ramet.runtime.engine.api import EventSource, Submit
from ramet.runtime.server.calls.call import Call
from ramet.runtime.server.calls.context import ServerContext
from ramet.runtime.server.calls.respond import abort_on_disconnect


async def start_generation(
    context: ServerContext,
    http_request: HttpRequest,
    call_id: str,
    requests: Sequence[Request],
    *,
    submit: Submit | None = None,
    origins: Origins | None = None,
    later: Constraint | None = None,
    field_of: Callable[[str], str] | None = None,
) -> Generation:
    """Admits a call, submits its requests and waits for the first event.

    A failure up to here is raised, so that it becomes a plain error response. The call is aborted
    if the client disconnects.

    Args:
        submit: the engine's, if None.
        origins: the fields that the constraint comes from, for errors.
        later: the constraint of a follow-up request; compiled now, so that it is refused now.
        field_of: the body's field of a parameter, for errors.
    """
    call = Call(context, http_request, call_id)
    whole = later
    try:
        call.trace.begin_call(call_id, requests)
        generation = Generation(call, lambda error: _located(error, whole, origins, field_of))
        async with abort_on_disconnect(http_request, call):
            if later is not None:
                requests = await _compile(context, call, later, requests)
            whole = requests[0].constraint
            for request in requests:
                generation.add((submit or context.submit)(request))
            await generation.begin()
    except InvalidRequestError as error:
        call.close()
        raise _located(error, whole, origins, field_of) from None
    except BaseException:
        call.close()
        raise
    return generation


def _located(
    error: InvalidRequestError,
    constraint: Constraint | None,
    origins: Origins | None,
    field_of: Callable[[str], str] | None,
) -> InvalidRequestError:
    """The error with the body's field as its ``param``; see ``start_generation``."""
    if isinstance(error, InvalidConstraintError):
        if origins is None or constraint is None:
            return error
        return origins.locate(constraint, error)
    return error if field_of is None else named_by_field(error, field_of)


async def _compile(
    context: ServerContext, call: Call, constraint: Constraint, requests: Sequence[Request]
) -> list[Request]:
    """Awaits a constraint; returns the requests with what is left of their deadlines."""
    clock = asyncio.get_running_loop().time
    began = clock()
    deadlines = [each.deadline_s for each in requests if each.deadline_s is not None]
    compiled = asyncio.wrap_future(context.engine.compile(constraint, requests[0].grammar_scope))
    try:
        await call.wait_for(asyncio.wait_for(compiled, min(deadlines, default=None)))
    except TimeoutError:
        raise DeadlineExceededError("the request's deadline has passed") from None

    def left(deadline_s: float | None) -> float | None:
        return None if deadline_s is None else max(deadline_s - (clock() - began), 1e-6)

    return [replace(each, deadline_s=left(each.deadline_s)) for each in requests]


class Generation:
    """Merges the events of a call's requests; all end with the call.

    Events that are ready together come together, so that a slow reader costs few, large writes.
    The first request that fails fails the call: its error is raised and the others are aborted.
    """

    def __init__(
        self, call: Call, located: Callable[[InvalidRequestError], InvalidRequestError]
    ) -> None:
        """``located`` names the body's field in an error that comes after the first event."""
        self.call = call
        self._located = located
        self._sources: list[EventSource] = []
        self._first: tuple[int, list[Event]] | None = None
        self._merged: AsyncIterator[tuple[int, list[Event]]] | None = None

    def add(self, source: EventSource) -> None:
        """Adds the next choice's request, before ``begin``."""
        self._sources.append(source)
        self.call.on_abort(source.abort)

    async def begin(self) -> None:
        """Waits for the first event, so that an early failure can still be a plain response."""
        self._merged = self._merge()
        self._first = await anext(self._merged, None)

    async def events(self) -> AsyncIterator[tuple[int, list[Event]]]:
        """Yields choice indices with their new events, until every choice has finished.

        Raises:
            RametError: a request failed; earlier events remain valid.
        """
        if self._merged is None:
            await self.begin()
        assert self._merged is not None
        try:
            if self._first is not None:
                yield self._first
            async for item in self._merged:
                yield item
        except InvalidRequestError as error:
            raise self._located(error) from None
        finally:
            self.call.close()

    async def _merge(self) -> AsyncIterator[tuple[int, list[Event]]]:
        if len(self._sources) == 1:
            async for events in self._read(self._sources[0]):
                yield 0, events
            return
        # Bounded, so that what a slow reader leaves is counted, in the sources.
        queue: asyncio.Queue[tuple[int, list[Event] | Exception]] = asyncio.Queue(1)
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
                await queue.put((index, events))
        except Exception as error:
            await queue.put((index, error))

    async def _read(self, source: EventSource) -> AsyncIterator[list[Event]]:
        """Yields all events that are ready, at least one; raises a failure.

        If it is left before the request's last event, that one is still counted when it comes.
        """
        has_ended = False
        try:
            async for events in self._read_to_end(source):
                has_ended = isinstance(events[-1], Finished)
                yield events
        except RametError:
            has_ended = True
            raise
        finally:
            if not has_ended:
                self.call.record_abandoned(source)

    async def _read_to_end(self, source: EventSource) -> AsyncIterator[list[Event]]:
        while True:
            events = [await anext(source)]
            events += source.take()
            last = events[-1]
            if isinstance(last, Failed):
                self.call.record_end(last)
                if len(events) > 1:
                    yield events[:-1]
                aborted = isinstance(last.error, RequestAbortedError)
                raise self.call.reason if aborted and self.call.reason else last.error
            if isinstance(last, Finished):
                self.call.record_end(last)
                yield events
                return
            yield events

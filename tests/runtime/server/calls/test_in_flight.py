"""A call's requests are in the engine a few at a time, and each end is reported once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ramet.runtime.api.errors import RequestAbortedError
from ramet.runtime.api.events import Event, Failed, Finished, TextDelta, Timings, TokenInfo, Usage
from ramet.runtime.api.request import Request
from ramet.runtime.server.calls.in_flight import InFlightLimit

END = Finished(reason="stop", usage=Usage(1, 1), timings=Timings())


class Source:
    """A request that gives one token a turn of the loop."""

    def __init__(self, engine: Engine, num_tokens: int) -> None:
        self.engine = engine
        self.left = num_tokens
        self.running = True
        self.aborted = False

    def take(self) -> list[Event]:
        return []

    def abort(self) -> None:
        self.aborted = True
        self._leave()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        await asyncio.sleep(0)
        if self.left:
            self.left -= 1
            return TextDelta("x", (TokenInfo(1, b"x"),))
        self._leave()
        return END

    def _leave(self) -> None:
        self.engine.num_running -= self.running
        self.running = False


class Engine:
    """Counts the requests that it has; refuses those without a prompt."""

    def __init__(self) -> None:
        self.num_running = 0
        self.most_running = 0

    def submit(self, request: Request) -> Source:
        if request.priority < 0:
            raise ValueError("refused")
        self.num_running += 1
        self.most_running = max(self.most_running, self.num_running)
        return Source(self, request.prompt_token_ids[0])


WAYS = st.sampled_from(["read", "leave", "abort", "refused"])


@given(ways=st.lists(WAYS, min_size=1, max_size=12), size=st.integers(1, 4))
def test_slots_bound_the_engine_and_are_given_back(ways: list[str], size: int) -> None:
    engine = Engine()
    ends: list[tuple[Request, Any]] = []

    async def run(limit: InFlightLimit, index: int, way: str) -> None:
        priority = -1 if way == "refused" else 0
        request = Request(prompt_token_ids=(3,), request_id=str(index), priority=priority)
        try:
            async with limit.submit(request) as stream:
                async for event in stream:
                    if way == "leave":
                        return
                    if way == "abort":
                        stream.abort()
                        return
                    if isinstance(event, Finished | Failed):
                        return
        except ValueError:
            assert way == "refused"

    async def run_all() -> None:
        limit = InFlightLimit(engine.submit, size, lambda *end: ends.append(end))
        async with asyncio.TaskGroup() as group:
            for index, way in enumerate(ways):
                group.create_task(run(limit, index, way))
        async with asyncio.timeout(60):  # every slot is free again
            for _ in range(size):
                await run(limit, -1, "read")

    asyncio.run(run_all())
    assert engine.num_running == 0
    assert engine.most_running <= size
    by_id = {request.request_id: event for request, event in ends}
    assert len(ends) == sum(way != "refused" for way in ways) + size
    for index, way in enumerate(ways):
        if way == "read":
            assert by_id[str(index)] is END
        elif way != "refused":
            failed = by_id[str(index)]
            assert isinstance(failed, Failed)
            assert isinstance(failed.error, RequestAbortedError)
            assert failed.usage == Usage(1, 1)


def test_a_request_aborted_before_its_slot_is_never_submitted() -> None:
    engine = Engine()

    async def run() -> Event:
        limit = InFlightLimit(engine.submit, 1)
        stream = limit.submit(Request(prompt_token_ids=(3,)))
        stream.abort()
        return await anext(stream)

    assert isinstance(asyncio.run(run()), Failed)
    assert engine.most_running == 0

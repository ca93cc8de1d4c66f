"""The server's engine as one program sees it: under its tenant's name, a bounded share at once."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import AsyncIterator, Callable

from ramet.runtime.api.errors import RequestAbortedError
from ramet.runtime.api.events import Event, Failed, Finished, TextDelta, Usage
from ramet.runtime.api.request import HintUpdate, Request
from ramet.runtime.engine.api import EngineApi, EventSource
from ramet.runtime.engine.stats import EngineStats
from ramet.runtime.server.calls.engine_requests import scoped_hint
from ramet.runtime.server.calls.tenants import Tenant
from ramet.runtime.tokenizer import ChatTemplate, Tokenizer

NoteEnd = Callable[[Request, Finished | Failed], None]


class ProgramEngine:
    """Sends a program's requests to the server's engine; see ``EngineLike``.

    Args:
        name: of the call, unique among all tenants'.
        max_at_once: requests of the program that are in the engine at once; others wait here.
        on_end: is told each request's end.
    """

    def __init__(
        self, engine: EngineApi, tenant: Tenant, name: str, *, max_at_once: int, on_end: NoteEnd
    ) -> None:
        self._engine = engine
        self._tenant = tenant
        self._name = name
        self._room = asyncio.Semaphore(max_at_once)
        self._numbers = itertools.count()
        self._on_end = on_end

    @property
    def model_name(self) -> str:
        return self._engine.model_name

    @property
    def tokenizer(self) -> Tokenizer:
        return self._engine.tokenizer

    @property
    def chat_template(self) -> ChatTemplate | None:
        return self._engine.chat_template

    def stats(self) -> EngineStats:
        return self._engine.stats()

    def update_hint(self, update: HintUpdate) -> None:
        """What the program has learned."""
        tenant = self._tenant
        self._engine.update_hint(
            dataclasses.replace(
                update,
                program_id=tenant.scoped(update.program_id),
                cache_salt=tenant.scoped(update.cache_salt),
            )
        )

    def submit(self, request: Request) -> Submission:
        """The request's events, once there is room for it."""
        tenant = self._tenant
        scoped = dataclasses.replace(
            request,
            cache_salt=tenant.scoped(request.cache_salt),
            tenant=tenant.name,
            hint=scoped_hint(request.hint, tenant) if request.hint else None,
            request_id=f"{self._name}-{next(self._numbers)}",
        )
        return Submission(scoped, self._engine.submit, self._room, self._on_end)


class Submission:
    """A request of a program, while ``async with`` lasts."""

    def __init__(
        self,
        request: Request,
        submit: Callable[[Request], EventSource],
        room: asyncio.Semaphore,
        on_end: NoteEnd,
    ) -> None:
        self._request = request
        self._submit = submit
        self._room = room
        self._on_end = on_end
        self._source: EventSource | None = None
        self._num_tokens = 0
        self._has_ended = False

    async def __aenter__(self) -> Submission:
        await self._room.acquire()
        try:
            self._source = self._submit(self._request)
        except BaseException:
            self._room.release()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._source is not None
        self._room.release()
        if not self._has_ended:
            self._source.abort()
            usage = Usage(len(self._request.prompt_token_ids), self._num_tokens)
            self._on_end(
                self._request, Failed(RequestAbortedError("the program was aborted"), usage)
            )

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        assert self._source is not None
        event = await anext(self._source)
        if isinstance(event, TextDelta):
            self._num_tokens += len(event.tokens)
        elif isinstance(event, Finished | Failed):
            self._has_ended = True
            self._on_end(self._request, event)
        return event

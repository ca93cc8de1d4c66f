"""The interface of an engine: of ``Engine``, and of the client of one in another process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Protocol

from ramet.grammars import Constraint
from ramet.runtime.api.events import Event
from ramet.runtime.api.request import GrammarScope, HintUpdate, Request
from ramet.runtime.cache import CacheView
from ramet.runtime.engine.memory_plan import MemoryPlan
from ramet.runtime.engine.monitoring.stats import EngineStats
from ramet.runtime.engine.requests.unread_answers import UnreadAnswers
from ramet.runtime.engine.sampling_defaults import SamplingDefaults
from ramet.runtime.tokenizer import ChatTemplate, Tokenizer

if TYPE_CHECKING:
    from ramet.grammars import Vocabulary  # loads compiled code


class EventSource(Protocol):
    """One request's events: what ``EngineApi.submit`` returns."""

    def take(self) -> list[Event]:
        """Every event that is ready now, without waiting."""
        ...

    def abort(self) -> None:
        """Ends the request within a step; harmless once it has ended."""
        ...

    def __aiter__(self) -> AsyncIterator[Event]: ...

    async def __anext__(self) -> Event: ...


class EventStream(EventSource, Protocol):
    """An event source that is a context manager: leaving it early aborts the request."""

    async def __aenter__(self) -> EventStream: ...

    async def __aexit__(self, *exception: object) -> None: ...


class LimitedStream(EventStream, Protocol):
    """An event stream whose unread events can be counted."""

    def limit_unread(self, unread: UnreadAnswers) -> None:
        """Counts what waits for a reader, and keeps nothing that has been read."""
        ...


Submit = Callable[[Request], EventSource]
"""Submits a request: the type of ``EngineApi.submit`` and of its wrappers."""


class GenerationEngine(Protocol):
    """The part of an engine that programs use."""

    @property
    def model_name(self) -> str: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def chat_template(self) -> ChatTemplate | None: ...

    def stats(self) -> EngineStats:
        """What the engine is doing; may take a moment."""
        ...

    def update_hint(self, update: HintUpdate) -> None:
        """Updates what is known of a program's future calls; never fails and never waits."""
        ...

    def submit(self, request: Request) -> EventStream:
        """Queues a request, or raises why it can't be served."""
        ...


class EngineApi(GenerationEngine, Protocol):
    """A running engine."""

    def submit(self, request: Request) -> LimitedStream: ...

    def cache_view(self) -> CacheView:
        """The prefixes in the cache, as people see them; may take a moment."""
        ...

    @property
    def sampling_defaults(self) -> SamplingDefaults:
        """The sampling parameters that the model's makers recommend."""
        ...

    @property
    def max_context_len(self) -> int: ...

    @property
    def memory_plan(self) -> MemoryPlan:
        """How the server's memory is divided."""
        ...

    @property
    def vocabulary(self) -> Vocabulary:
        """What grammars are compiled for."""
        ...

    @property
    def error(self) -> BaseException | None:
        """The error that ended the engine; None while it runs."""
        ...

    def set_tenant_weights(self, weights: Mapping[str, float]) -> None:
        """Replaces the tenants' shares of a busy engine, for tokens to come; never waits."""
        ...

    def compile(self, constraint: Constraint, scope: GrammarScope = ...) -> Future[None]:
        """Has a constraint compiled ahead of its requests; the future's error says why not."""
        ...

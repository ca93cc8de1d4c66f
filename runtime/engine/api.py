"""What the server needs of an engine: ``Engine`` is one, and so is a client of one elsewhere."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Protocol

from ramet.grammars import Constraint
from ramet.runtime.api.request import ProgramNews, Request
from ramet.runtime.engine.config import EngineStats
from ramet.runtime.server.chat.generation import EventSource
from ramet.runtime.tokenizer import ChatTemplate, Tokenizer

if TYPE_CHECKING:
    from ramet.grammars import Vocabulary


class EngineApi(Protocol):
    """A running engine."""

    @property
    def model_name(self) -> str: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def chat_template(self) -> ChatTemplate | None: ...

    @property
    def max_context_len(self) -> int: ...

    @property
    def vocabulary(self) -> Vocabulary:
        """What grammars are compiled for."""
        ...

    @property
    def error(self) -> BaseException | None:
        """What the engine has died of; None while it lives."""
        ...

    def stats(self) -> EngineStats:
        """What the engine is doing."""
        ...

    def compile(self, constraint: Constraint) -> Future[None]:
        """Has a constraint compiled ahead of its requests; the future's error says why not."""
        ...

    def hear(self, news: ProgramNews) -> None:
        """Takes in what a program has learned; never fails, and doesn't wait."""
        ...

    def submit(self, request: Request) -> EventSource:
        """Queues a request, or raises why it can't be served."""
        ...

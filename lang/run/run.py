"""Run: one execution of a program, while it goes on and after."""

from __future__ import annotations

import asyncio
import concurrent.futures
import dataclasses
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from functools import cached_property
from typing import Any, Generic, TypeVar

from ramet.lang.backends.base import Backend
from ramet.lang.base.errors import RoleError, UnknownNameError, UnresolvedValueError
from ramet.lang.base.event_loop import on_shared_loop
from ramet.lang.base.greenlets import can_switch, switch_and_wait
from ramet.lang.graph.graph import RequestGraph
from ramet.lang.graph.nodes import CALL_KINDS, Text
from ramet.lang.run.context import Escaped, RunContext
from ramet.lang.run.events import EventLog, NodeAdded, NodeFinished, RunEnded, RunEvent, TextPiece
from ramet.lang.run.prompts import render
from ramet.lang.run.run_options import RunOptions
from ramet.lang.run.session import Session
from ramet.lang.run.state import State
from ramet.lang.run.writer import Writer
from ramet.lang.trace.trace import Trace
from ramet.lang.types.values import Meta
from ramet.runtime.api.errors import RequestAbortedError
from ramet.runtime.api.request import HintUpdate

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

BindState = Callable[[State], Callable[[], Any]]
"""Given the run's first state, the program's function with all its arguments."""


class Run(Generic[T_co]):
    """A program's run. ``run["name"]`` is a variable's plain value; ``run.result`` what the
    program returned, with every Value in it resolved. Both wait.

    Iterate ``run.events`` (also ``async for``) to see all that happens, or ``run.text_iter()``
    for the text of one variable or of the whole first state as it is written.
    """

    def __init__(
        self,
        name: str,
        bind: BindState,
        backend: Backend,
        options: RunOptions,
        loop: asyncio.AbstractEventLoop,
        arguments: dict[str, Any],
    ) -> None:
        self.name = name
        self._session = Session(name, backend, options, loop)
        self._context = RunContext(self._session)
        self._backend = backend
        self._loop = loop
        self._bind = bind
        self._state: State | None = None
        self._done: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self._work: asyncio.Task[Any] | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._arguments: dict[str, Any] = arguments
        loop.call_soon_threadsafe(self._start)

    def __repr__(self) -> str:
        if not self.done:
            state = "goes on"
        else:
            state = "done" if self.error is None else f"failed: {self.error}"
        return f"<run of {self.name}: {len(self.graph.calls())} calls, {state}>"

    # Running.

    def _start(self) -> None:
        self._session.begin()
        self._work = self._loop.create_task(self._perform())
        self._supervisor = self._loop.create_task(self._supervise(self._work))

    async def _perform(self) -> Any:
        self._state = State(Writer(self._context))
        return await self._context.perform(self._bind(self._state))

    async def _supervise(self, work: asyncio.Task[Any]) -> None:
        """Waits for the run's end, whatever becomes of its work; never cancelled."""
        await asyncio.wait([work])
        error: BaseException | None
        if work.cancelled():
            error = RequestAbortedError("the run was cancelled")
        else:
            error = work.exception()
            if isinstance(error, Escaped):
                error = error.error
        try:
            await self._context.cancel()
            await self._backend.update_hint(
                HintUpdate(
                    program_id=self._session.program_id,
                    cache_salt=self._session.options.cache_salt,
                    has_ended=True,
                )
            )
        except Exception as raised:
            error = error or raised
        finally:
            for writer in list(self._session.writers):
                writer.close()
            self._session.log.append(RunEnded(error))
            if error is None:
                self._done.set_result(work.result())
            else:
                self._done.set_exception(error)

    def cancel(self) -> None:
        """Aborts every call of the run; returns at once."""

        def cancel_task() -> None:
            if self._work is not None:
                self._work.cancel()

        self._loop.call_soon_threadsafe(cancel_task)

    def wait(self) -> Run[T_co]:
        """Waits for the run's end and raises its error, if it has one.

        A KeyboardInterrupt aborts the run's calls before it goes on.
        """
        if not self._done.done():
            self._session.require_home()
            if can_switch():
                switch_and_wait(asyncio.wrap_future(self._done))
            elif on_shared_loop() or self._runs_here():
                raise UnresolvedValueError("the run hasn't ended, and this is its event loop")
        try:
            self._done.result()
        except KeyboardInterrupt:
            self.cancel()
            concurrent.futures.wait([self._done], timeout=5)
            raise
        return self

    def __await__(self) -> Generator[Any, None, Run[T_co]]:
        return self._ended().__await__()

    async def _ended(self) -> Run[T_co]:
        if not self._done.done():
            self._session.require_home()
        done = asyncio.wrap_future(self._done)
        try:
            await asyncio.wait([done])  # unlike a bare await, cancels nothing but itself
        except asyncio.CancelledError:
            self.cancel()
            await asyncio.wait([done])
            done.exception()
            raise
        done.result()
        return self

    def _runs_here(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    # Results.

    @property
    def done(self) -> bool:
        """Whether the run has ended."""
        return self._done.done()

    @property
    def error(self) -> BaseException | None:
        """What ended the run badly, once it has ended; None while it goes on."""
        return self._done.exception() if self._done.done() else None

    @property
    def result(self) -> T_co:
        """What the program returned; waits, and raises the run's error."""
        self.wait()
        result: T_co = self._done.result()
        return result

    @property
    def values(self) -> dict[str, Any]:
        """The finished values by variable, also of a run that failed or still goes on."""
        return self._session.values()

    def __getitem__(self, name: str) -> Any:
        return self._finished(name).result.value

    def meta(self, name: str) -> Meta:
        """Finish reason, usage, timings and scores of the call that set a variable; waits."""
        return self._finished(name).result.meta

    get_meta_info = meta

    def _finished(self, name: str) -> NodeFinished:
        """The first state's node of that name, or else the first of a branch; waits."""
        if not self.done:
            for event in self._session.log:
                if isinstance(event, NodeFinished) and getattr(event.node, "name", "") == name:
                    if "." not in event.node.id:
                        return event
                elif isinstance(event, RunEnded):
                    break
        found = self._finished_names.get(name)
        if found is not None:
            return found
        concurrent.futures.wait([self._done])  # which comes right behind its event
        if self.error is not None:
            raise self.error
        known = ", ".join(sorted(self.values)) or "none"
        raise UnknownNameError(f"the run has no variable {name!r}; it has: {known}")

    @cached_property
    def _finished_names(self) -> dict[str, NodeFinished]:
        """The named nodes of a run that has ended, as ``_finished`` has them."""
        finished = [e for e in self._session.log.snapshot() if isinstance(e, NodeFinished)]
        in_branches = [event for event in finished if "." in event.node.id]
        in_first = [event for event in finished if "." not in event.node.id]
        in_order = (*reversed(in_branches), *reversed(in_first))  # the last of a name wins
        return {getattr(event.node, "name", ""): event for event in in_order}

    def text(self) -> str:
        """The whole text of the program's first state; waits for the run."""
        return "".join(message["content"] for message in self._messages())

    def messages(self) -> list[dict[str, str]]:
        """The chat turns of the program's first state; waits for the run.

        Raises:
            RoleError: the state holds raw text.
        """
        messages = self._messages()
        if any(not message["role"] for message in messages):
            raise RoleError("the state holds raw text, not chat turns")
        return messages

    def _messages(self) -> list[dict[str, str]]:
        self.wait()
        assert self._state is not None
        return self._context.rendered(self._state._writer.tail)

    # Watching.

    @property
    def graph(self) -> RequestGraph:
        """The graph, as far as it has been made."""
        return self._session.graph

    @property
    def events(self) -> EventLog:
        """All that happens, from the beginning, as it happens."""
        return self._session.log

    @property
    def trace(self) -> Trace:
        """Every call's record so far: see ``ramet.lang.trace.trace``."""
        session, executor = self._session, self._context.executor
        assert executor is not None
        calls = [dataclasses.replace(record) for record in list(executor.records.values())]
        return Trace(
            program=session.graph.name,
            program_id=session.program_id,
            seed=session.options.seed,
            began_at=executor.began_at,
            wall_s=max((record.finished_s or 0.0 for record in calls), default=0.0),
            calls=calls,
            texts={
                record.node_id: session.result_of(record.node_id).text
                for record in calls
                if record.finished_s is not None
                and record.error is None
                and record.kind != "prefill"
            },
            arguments=self._arguments,
            sampling=dict(session.options.sampling),
            backend="" if session.backend is None else session.backend.name,
        )

    def text_iter(self, name: str | None = None) -> Iterator[str]:
        """The text of a variable, or of the whole first state, in pieces as it comes.

        Raises the run's error where it has one, and UnknownNameError at the end of a run that had
        no such variable.
        """
        reader = _TextReader(self._session, name)
        for event in self._session.log:
            yield from reader.feed(event)

    async def text_async_iter(self, name: str | None = None) -> AsyncIterator[str]:
        """``text_iter`` for ``async for``."""
        reader = _TextReader(self._session, name)
        async for event in self._session.log:
            for piece in reader.feed(event):
                yield piece


class _TextReader:
    """Picks the text of one variable, or of the first state, out of a run's events."""

    def __init__(self, session: Session, name: str | None) -> None:
        self._session = session
        self._name = name
        self._waiting: list[Any] = []  # nodes of the first state whose text isn't out yet
        self._held: dict[str, list[str]] = {}  # pieces of calls that aren't first in line
        self._finished: set[str] = set()
        self._is_known = name is None

    def feed(self, event: RunEvent) -> Iterator[str]:
        if isinstance(event, RunEnded):
            if event.error is not None:
                raise event.error
            if not self._is_known:
                raise UnknownNameError(f"the run has no variable {self._name!r}")
            return
        if self._name is not None:
            self._is_known |= getattr(event.node, "name", "") == self._name
            if isinstance(event, TextPiece) and getattr(event.node, "name", "") == self._name:
                yield event.text
            return
        node = event.node
        if isinstance(event, NodeAdded):
            if "." not in node.id and isinstance(node, (Text, *CALL_KINDS)):
                self._waiting.append(node)
        elif isinstance(event, TextPiece):
            self._held.setdefault(node.id, []).append(event.text)
        elif isinstance(event, NodeFinished):
            self._finished.add(node.id)
        yield from self._ready()

    def _ready(self) -> Iterator[str]:
        while self._waiting:
            node = self._waiting[0]
            if isinstance(node, Text):
                if any(not self._session.is_settled(ref.node_id) for ref in node.refs()):
                    return
                yield render(node.parts, self._session.text_of)
            else:
                yield from self._held.pop(node.id, ())
                if node.id not in self._finished:
                    return
            self._waiting.pop(0)

"""``Run``: one execution of a program, running or ended."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from functools import cached_property
from types import TracebackType
from typing import Any, Generic, TypeVar

from ramet.lang.backends.base import Backend
from ramet.lang.base.errors import (
    RoleError,
    RunTimeoutError,
    UnknownNameError,
    UnresolvedValueError,
    UsageError,
)
from ramet.lang.base.event_loop import on_shared_loop
from ramet.lang.base.frames import hide_own_frames
from ramet.lang.base.greenlets import can_switch, switch_and_wait
from ramet.lang.graph.graph import RequestGraph
from ramet.lang.run.events import EventLog, NodeFinished, RunEnded
from ramet.lang.run.run_options import RunOptions
from ramet.lang.run.session import Escaped, Session
from ramet.lang.run.session_trace import trace_of
from ramet.lang.run.text_reader import TextReader
from ramet.lang.run.writer import Writer
from ramet.lang.trace.trace import Trace
from ramet.lang.types.values import Meta
from ramet.runtime.api.errors import RequestAbortedError
from ramet.runtime.api.names import nearest

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Bind = Callable[[Session, Writer], Callable[[], Any]]
"""Given the run's session and its first state's writer, the function that the run performs."""


class Run(Generic[T_co]):
    """A program's run. ``run["name"]`` is a variable's plain value; ``run.result`` what the
    program returned, with every Value in it resolved. Both wait.

    Iterate ``run.events`` (also ``async for``) to see all that happens, or ``run.text_iter()``
    for the text of one variable or of the whole first state as it is written.
    """

    def __init__(
        self,
        name: str,
        bind: Bind,
        backend: Backend,
        options: RunOptions,
        loop: asyncio.AbstractEventLoop,
        arguments: dict[str, Any],
    ) -> None:
        self.name = name
        self._session = Session(name, backend, options, loop)
        self._outcomes = self._session.outcomes
        self._loop = loop
        self._bind = bind
        self._first: Writer | None = None
        self._traceback: TracebackType | None = None
        self._kept: tuple[str | None, Trace] | None = None  # of a run that was unpickled
        self._done: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self._work: asyncio.Task[Any] | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._arguments: dict[str, Any] = arguments
        self._has_begun = False

    def __repr__(self) -> str:
        if not self.done:
            state = "goes on"
        else:
            state = "done" if self.error is None else f"failed: {self.error}"
        return f"<run of {self.name}: {len(self.graph.calls())} calls, {state}>"

    def __getstate__(self) -> dict[str, Any]:
        """A run that has ended: its values, events, messages and trace."""
        if not self.done:
            raise UsageError("a run that goes on can't be pickled; wait for its end")
        result = None if self.error is not None else self._done.result()
        outcome = (result, self.error)
        return {
            "name": self.name,
            "_outcomes": self._outcomes,
            "_kept": (self._tail, self.trace),
            "_done": outcome,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        result, error = state.pop("_done")
        done: concurrent.futures.Future[Any] = concurrent.futures.Future()
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)
        self.__dict__.update(state, _done=done, _traceback=None)

    # Running.

    def begin(self) -> Run[T_co]:
        """Starts the run, once; returns immediately."""
        if not self._has_begun:
            self._has_begun = True
            self._loop.call_soon_threadsafe(self._start)
        return self

    def _start(self) -> None:
        self._outcomes.begin()
        self._work = self._loop.create_task(self._perform())
        self._supervisor = self._loop.create_task(self._supervise(self._work))

    async def _perform(self) -> Any:
        self._first = Writer(self._session)
        timeout_s = self._session.options.timeout_s
        try:
            async with asyncio.timeout(timeout_s) as limit:
                return await self._session.perform(self._bind(self._session, self._first))
        except TimeoutError:
            if timeout_s is None or not limit.expired():
                raise  # the program's own
            raise RunTimeoutError(self.name, timeout_s, self._outcomes.values()) from None

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
            await self._session.end(has_failed=error is not None)
        except Exception as raised:
            error = error or raised
        finally:
            if error is not None:
                hide_own_frames(error)
                self._traceback = error.__traceback__
            self._outcomes.log.append(RunEnded(error))
            if error is None:
                self._done.set_result(work.result())
            else:
                self._done.set_exception(error)

    def cancel(self) -> None:
        """Aborts every call of the run; returns immediately."""

        if self.done:
            return

        def cancel_task() -> None:
            if self._work is not None:
                self._work.cancel()

        self._loop.call_soon_threadsafe(cancel_task)

    def wait(self) -> Run[T_co]:
        """Waits for the run's end and raises its error, if it has one.

        A KeyboardInterrupt aborts the run's calls before it goes on.
        """
        __tracebackhide__ = True
        try:
            if not self._done.done():
                self.begin()
                self._outcomes.require_home()
                if can_switch():
                    switch_and_wait(self._until_done())
                elif on_shared_loop() or self._runs_here():
                    raise UnresolvedValueError("the run hasn't ended, and this is its event loop")
                concurrent.futures.wait([self._done])
        except KeyboardInterrupt:
            if self._has_begun:
                self.cancel()
                concurrent.futures.wait([self._done], timeout=5)
            raise
        error = self.error
        if error is not None:
            raise error.with_traceback(self._traceback)
        return self

    def call_when_done(self, function: Callable[[], None]) -> None:
        """Calls a function when the run has ended, on the thread of its event loop."""
        self._done.add_done_callback(lambda _: function())

    def __await__(self) -> Generator[Any, None, Run[T_co]]:
        return self._ended().__await__()

    async def _ended(self) -> Run[T_co]:
        if not self._done.done():
            self._outcomes.require_home()
        try:
            await self._until_done()
        except asyncio.CancelledError:
            self.cancel()
            await self._until_done()
            raise
        return self.wait()

    async def _until_done(self) -> None:
        """Waits for the end; cancelling the waiter doesn't cancel the run."""
        done = asyncio.wrap_future(self._done)
        await asyncio.wait([done])
        done.exception()  # marks it as retrieved

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
        """The error that ended the run; None while it runs or if it succeeded."""
        return self._done.exception() if self._done.done() else None

    @property
    def result(self) -> T_co:
        """The program's return value; waits, and raises the run's error."""
        self.wait()
        result: T_co = self._done.result()
        return result

    @property
    def values(self) -> dict[str, Any]:
        """The finished values by variable, also of a run that failed or still goes on."""
        return self._outcomes.values()

    def __getitem__(self, name: str) -> Any:
        return self._finished(name).result.value

    def meta(self, name: str) -> Meta:
        """Finish reason, usage, timings and scores of the call that set a variable; waits."""
        return self._finished(name).result.meta

    get_meta_info = meta

    def _finished(self, name: str) -> NodeFinished:
        """The first state's node of that name, or else the first of a branch; waits."""
        if not self.done:
            for event in self._outcomes.log:
                if isinstance(event, NodeFinished) and getattr(event.node, "name", "") == name:
                    if "." not in event.node.id:
                        return event
                elif isinstance(event, RunEnded):
                    break
        found = self._finished_names.get(name)
        if found is not None:
            return found
        concurrent.futures.wait([self._done])  # which comes right behind its event
        self.wait()
        known = ", ".join(sorted(self.values)) or "none"
        hint = nearest(name, self.values)
        raise UnknownNameError(f"the run has no variable {name!r}; it has: {known}{hint}")

    @cached_property
    def _finished_names(self) -> dict[str, NodeFinished]:
        """The named nodes of a run that has ended, as ``_finished`` has them."""
        finished = [e for e in self._outcomes.log.snapshot() if isinstance(e, NodeFinished)]
        in_branches = [event for event in finished if "." in event.node.id]
        in_first = [event for event in finished if "." not in event.node.id]
        in_order = (*reversed(in_branches), *reversed(in_first))  # the last of a name wins
        return {getattr(event.node, "name", ""): event for event in in_order}

    @property
    def _tail(self) -> str | None:
        """The last node of the first state."""
        if self._kept is not None:
            return self._kept[0]
        return None if self._first is None else self._first.tail

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
        return self._outcomes.rendered(self._tail)

    # Watching.

    @property
    def graph(self) -> RequestGraph:
        """The graph, as far as it has been made."""
        return self._outcomes.graph

    @property
    def events(self) -> EventLog:
        """All that happens, from the beginning, as it happens."""
        return self._outcomes.log

    @property
    def trace(self) -> Trace:
        """Every call's record so far: see ``ramet.lang.trace.trace``."""
        if self._kept is not None:
            return self._kept[1]
        return trace_of(self._session, self._arguments)

    def text_iter(self, name: str | None = None) -> Iterator[str]:
        """The text of a variable, or of the whole first state, in pieces as it comes.

        Raises the run's error where it has one, and UnknownNameError at the end of a run that had
        no such variable.
        """
        reader = TextReader(self._outcomes, name)
        for event in self._outcomes.log:
            yield from reader.feed(event)

    async def text_async_iter(self, name: str | None = None) -> AsyncIterator[str]:
        """``text_iter`` for ``async for``."""
        reader = TextReader(self._outcomes, name)
        async for event in self._outcomes.log:
            for piece in reader.feed(event):
                yield piece

"""Session: executes one run on its event loop: the program's function, its branches, its calls."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import inspect
import itertools
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, Protocol
from weakref import WeakSet

from ramet.lang.backends.base import Backend, CallPlace
from ramet.lang.base.errors import NodeFailedError, UsageError
from ramet.lang.base.greenlets import run_switching
from ramet.lang.graph.nodes import Gen, Node, Select, ToolCall
from ramet.lang.graph.references import Ref
from ramet.lang.run.executor import Executor, NodeCode
from ramet.lang.run.outcomes import DryRunStopped, Outcomes, current_join
from ramet.lang.run.prompts import render
from ramet.lang.run.run_options import RunOptions
from ramet.lang.types.types import OutputType
from ramet.lang.types.values import NodeResult, Value, leaves, resolve, text_of
from ramet.runtime.api.errors import RequestAbortedError
from ramet.runtime.api.request import HintUpdate

ESCAPES = (SystemExit, KeyboardInterrupt)
"""What user code may raise that would end the event loop, were it to get there."""


class Escaped(Exception):
    """Carries one of ``ESCAPES`` out of the event loop, to the thread that waits for the run."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class Nested(Protocol):
    """A run that code of another run started."""

    def cancel(self) -> None: ...


class Caller:
    """Code of a run that may run other programs: its function, a branch's, or a tool.

    Args:
        session: of the run.
        place: the node that the code settles; empty for the program's function.
    """

    def __init__(self, session: Session, place: str = "") -> None:
        self.session = session
        self._place = place
        self._numbers = itertools.count()

    def next_seed(self) -> int:
        """The seed of the next run that this code starts."""
        return self.session.seed_of(f"{self._place}/{next(self._numbers)}")


current_caller: ContextVar[Caller | None] = ContextVar("ramet_current_caller", default=None)
"""The code of a run that is running."""


class BranchWriter(Protocol):
    """Appends nodes to one branch, until it is closed."""

    branch: str

    def close(self) -> None: ...


class Session:
    """One run in execution, on one event loop. Without a backend it is a dry run.

    Attributes:
        outcomes: the graph, and what became of its nodes.
        executor: sends nodes to the backend; None in a dry run.
        outputs: by Gen, what its text must be.
    """

    def __init__(
        self,
        name: str,
        backend: Backend | None,
        options: RunOptions,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.outcomes = Outcomes(name, options, loop, is_dry_run=backend is None)
        self.graph = self.outcomes.graph
        self.options = options
        self.backend = backend
        self.executor = None if backend is None else Executor(self.outcomes, backend)
        self.outputs: dict[str, OutputType[Any]] = {}
        self._writers: WeakSet[BranchWriter] = WeakSet()
        self._branches: set[asyncio.Task[None]] = set()
        self._nested: WeakSet[Nested] = WeakSet()
        self._has_returned = False

    def add_nested(self, run: Nested) -> None:
        """Adds a run that ends early where this one does."""
        self._nested.add(run)

    def seed_of(self, node_id: str) -> int:
        """A seed for a call that names none: the run's, and the call's place in the graph."""
        key = f"{self.options.seed}:{node_id}".encode()
        return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little") >> 2

    # Nodes.

    def add(self, node: Node, code: NodeCode = None, *, sends: bool = True) -> Value[Any]:
        """Appends a node to the graph and sends it when what it needs is there.

        Args:
            code: a Gen's output type; a ToolCall's tool.
            sends: False leaves that to ``send``.
        """
        if not self.outcomes.is_on_thread:
            raise UsageError("a state belongs to its program; it can't be used in another thread")
        if isinstance(node, Gen | Select) and self.backend is not None:
            place = CallPlace(node.role is not None, self.graph.continues_turn(node))
            self.backend.check(node, place)
        self.outcomes.add(node)
        if isinstance(code, OutputType):
            self.outputs[node.id] = code
        if self.executor is not None:
            self.executor.add_node(node)
            if sends:
                self.send(node, code)
        return Value(self.outcomes, node.id)

    def send(self, node: Node, code: NodeCode = None) -> None:
        """Sends a node that was added without being sent."""
        if self.executor is None:
            return
        if isinstance(node, ToolCall):  # its task inherits the variable
            token = current_caller.set(Caller(self, node.id))
            self.executor.start(node, code)
            current_caller.reset(token)
        else:
            self.executor.start(node, code)

    def expect_tool(self, node_id: str, tool: str) -> None:
        """Notes which tool (or several, joined by ``|``) runs after a call."""
        if self.executor is not None:
            self.executor.expect_tool(node_id, tool)

    # Branches.

    def add_writer(self, writer: BranchWriter) -> None:
        """Adds the writer of a branch that begins."""
        self._writers.add(writer)
        if self.executor is not None:
            self.executor.add_branch(writer.branch)

    def end_branch(self, branch: str) -> None:
        """Ends a branch: nothing can be appended to its state any more."""
        if self.executor is not None:
            self.executor.end_branch(branch)

    def lose_branch(self, branch: str) -> None:
        """Ends the branch of a state that was garbage-collected, on any thread, at any point."""
        if self.executor is not None:
            self.executor.lose_branch(branch)

    def start_branch(
        self,
        writer: BranchWriter,
        join_id: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        closes: bool = True,
    ) -> None:
        """Runs ``function(*args, **kwargs)`` as a task; its result settles ``join_id``.

        Args:
            writer: of the state that the function appends to.
            closes: the state is the function's own, and is closed after it.
        """
        call = functools.partial(function, *args, **kwargs)
        work = self._run_branch(writer, join_id, call, closes)
        task = asyncio.get_running_loop().create_task(work)
        self._branches.add(task)
        task.add_done_callback(self._remove_branch)

    def _remove_branch(self, task: asyncio.Task[None]) -> None:
        self._branches.discard(task)
        self._close_if_ended()

    def _close_if_ended(self) -> None:
        """Closes all states when no code of the program runs any more."""
        if self._has_returned and not self._branches:
            self._close_writers()

    def _close_writers(self) -> None:
        for writer in list(self._writers):
            writer.close()

    async def _run_branch(
        self, writer: BranchWriter, join_id: str, call: Callable[[], Any], closes: bool
    ) -> None:
        current_join.set(join_id)
        current_caller.set(Caller(self, join_id))
        try:
            result = await self.run_function(call)
            self.graph.set_inputs(join_id, self._needs(result))
            if self.outcomes.is_dry_run:
                return
            plain = await self._resolve_all(result)
        except DryRunStopped as stop:
            self.outcomes.stopped_at(writer.branch, stop)
        except asyncio.CancelledError:
            self._fail(join_id, RequestAbortedError("the run was cancelled"))
            raise
        except (Exception, *ESCAPES) as error:
            self._fail(join_id, error)
        else:
            self.outcomes.finish(join_id, NodeResult(text_of(plain), plain))
        finally:
            if closes:
                writer.close()

    def _fail(self, node_id: str, error: BaseException) -> None:
        if self.executor is not None:
            self.executor.fail(node_id, error)
        else:
            self.outcomes.fail(node_id, error)

    # Functions and their results.

    async def run_function(self, call: Callable[[], Any]) -> Any:
        """Runs a program's function: a coroutine as it is, a plain one so that it can wait."""
        function = call.func if isinstance(call, functools.partial) else call
        if inspect.iscoroutinefunction(getattr(function, "function", function)):
            return await call()
        result = await run_switching(call)
        return await result if inspect.iscoroutine(result) else result

    async def _resolve_all(self, result: Any) -> Any:
        """A program's result with every Value in it resolved, and every reference in its texts."""
        for leaf in leaves(result):
            if isinstance(leaf, Value):
                await leaf
            for ref in self._refs(leaf):
                await self.outcomes.wait_async(ref.node_id)
        return resolve(result, self._filled)

    def _refs(self, leaf: Any) -> list[Ref]:
        parts = self.outcomes.references.parse(leaf) if isinstance(leaf, str) else ()
        return [part for part in parts if isinstance(part, Ref)]

    def _filled(self, text: str) -> str:
        if not self._refs(text):
            return text  # the very object, should it be of a class of its own
        return render(self.outcomes.references.parse(text), self.outcomes.text_of)

    def _needs(self, result: Any) -> tuple[str, ...]:
        """The nodes whose values a branch's result holds, or refers to in its texts."""
        needs: list[str] = []
        for leaf in leaves(result):
            needs += [leaf.node_id] if isinstance(leaf, Value) else []
            needs += [ref.node_id for ref in self._refs(leaf)]
        return tuple(dict.fromkeys(needs))

    # The whole run.

    async def perform(self, call: Callable[[], Any]) -> Any:
        """Runs a whole program: its function, its branches, all its calls.

        Raises:
            NodeFailedError: a call failed and the program didn't deal with it.
        """
        current_caller.set(Caller(self))
        current_join.set(None)
        try:
            result = await self.run_function(call)
            self._has_returned = True
            self._close_if_ended()
            result = await self._resolve_all(result)
        except NodeFailedError as error:
            await self.drain()  # what doesn't depend on the failure may finish
            error.values = self.outcomes.values()
            raise
        except BaseException as error:
            if self.executor is not None:
                self.executor.abort()  # before any await, so that what isn't sent never is
            if isinstance(error, ESCAPES):
                raise Escaped(error) from error
            raise
        await self.drain()
        failure = self.outcomes.unhandled_failure()
        if failure is not None:
            raise failure
        return result

    async def drain(self) -> None:
        """Waits until no branch and no call runs."""
        while True:
            if self._branches:
                await asyncio.wait(list(self._branches))
            elif self.executor is not None and self.outcomes.num_unsettled:
                await self.executor.drain()
                if not self._branches:
                    return
            else:
                return

    async def cancel(self) -> None:
        """Ends all branches and aborts all calls."""
        for task in list(self._branches):
            task.cancel()
        if self._branches:
            await asyncio.wait(list(self._branches))
        if self.executor is not None:
            await self.executor.cancel()

    async def end(self, *, has_failed: bool) -> None:
        """Aborts what still runs, reports the end to the backend, and closes all states.

        Runs that this one started go on where it has not failed.
        """
        for run in list(self._nested) if has_failed else ():
            run.cancel()
        try:
            await self.cancel()
            if self.backend is not None:
                update = HintUpdate(
                    program_id=self.outcomes.program_id,
                    cache_salt=self.options.cache_salt,
                    has_ended=True,
                )
                await self.backend.update_hint(update)
        finally:
            self._close_writers()

"""Executes a run: the program's function, its branches' functions, its calls."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ramet.lang.base.errors import NodeFailedError
from ramet.lang.base.greenlets import run_switching
from ramet.lang.graph.nodes import CALL_KINDS, Text
from ramet.lang.graph.references import Ref
from ramet.lang.run.executor import Executor
from ramet.lang.run.prompts import messages_of, render
from ramet.lang.run.session import BranchWriter, DryRunStopped, Session, current_join
from ramet.lang.types.values import NodeResult, Value, leaves, resolve, text_of
from ramet.runtime.api.errors import RequestAbortedError

ESCAPES = (SystemExit, KeyboardInterrupt)
"""What user code may raise that would end the event loop, were it to get there."""


class Escaped(Exception):
    """Carries one of ``ESCAPES`` out of the event loop, to the thread that waits for the run."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class RunContext:
    """The parts of a run that states use, in addition to its session."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.executor: Executor | None = None
        self._branches: set[asyncio.Task[None]] = set()
        self._has_returned = False
        if session.backend is not None:
            self.executor = Executor(session, session.backend)
            session.on_node = self.executor.start

    def seed_of(self, node_id: str) -> int:
        """A seed for a call that names none: the run's, and the call's place in the graph."""
        key = f"{self.session.options.seed}:{node_id}".encode()
        return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little") >> 2

    def rendered(self, tail: str | None) -> list[dict[str, str]]:
        """The messages of a state; waits for its calls."""
        nodes = self.session.graph.chain(tail)
        for node in nodes:
            if isinstance(node, CALL_KINDS):
                self.session.look(node.id)
            elif isinstance(node, Text):
                for ref in node.refs():
                    self.session.look(ref.node_id)
        messages = messages_of(nodes, self.session.text_of)
        return [{"role": message.role or "", "content": message.content} for message in messages]

    def start_branch(
        self,
        state: object,
        writer: BranchWriter,
        join_id: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        is_branch: bool = True,
    ) -> None:
        """Runs a function on a state as a task of its own; its result settles ``join_id``.

        Args:
            writer: the state's writer.
            is_branch: the state is the function's own, and is closed after it.
        """
        call = functools.partial(function, state, *args, **kwargs)
        work = self._run_branch(writer, join_id, call, is_branch)
        task = asyncio.get_running_loop().create_task(work)
        self._branches.add(task)
        task.add_done_callback(self._branch_ended)

    def _branch_ended(self, task: asyncio.Task[None]) -> None:
        self._branches.discard(task)
        self._close_if_ended()

    def _close_if_ended(self) -> None:
        """Once no code of the program runs any more, no state can grow."""
        if self._has_returned and not self._branches:
            for writer in list(self.session.writers):
                writer.close()

    async def _run_branch(
        self, writer: BranchWriter, join_id: str, call: Callable[[], Any], is_branch: bool
    ) -> None:
        session = self.session
        current_join.set(join_id)
        try:
            result = await self.run_function(call)
            session.graph.set_inputs(join_id, self._needs(result))
            if session.is_dry_run:
                return
            plain = await self.resolve_all(result)
        except DryRunStopped as stop:
            session.stopped_at(writer.branch, stop)
        except asyncio.CancelledError:
            session.fail(join_id, RequestAbortedError("the run was cancelled"))
            raise
        except (Exception, *ESCAPES) as error:
            session.fail(join_id, error)
        else:
            session.finish(join_id, NodeResult(text_of(plain), plain))
        finally:
            if is_branch:
                writer.close()

    async def run_function(self, call: Callable[[], Any]) -> Any:
        """Runs a program's function: a coroutine as it is, a plain one so that it can wait."""
        function = call.func if isinstance(call, functools.partial) else call
        if inspect.iscoroutinefunction(getattr(function, "function", function)):
            return await call()
        result = await run_switching(call)
        return (
            await result if inspect.isawaitable(result) and inspect.iscoroutine(result) else result
        )

    async def resolve_all(self, result: Any) -> Any:
        """A program's result with every Value in it resolved, and every reference in its texts."""
        for leaf in leaves(result):
            if isinstance(leaf, Value):
                await leaf
            for ref in self._refs(leaf):
                await self.session.arrival(ref.node_id)
        return resolve(result, self._filled)

    def _refs(self, leaf: Any) -> list[Ref]:
        parts = self.session.references.parse(leaf) if isinstance(leaf, str) else ()
        return [part for part in parts if isinstance(part, Ref)]

    def _filled(self, text: str) -> str:
        if not self._refs(text):
            return text  # the very object, should it be of a class of its own
        return render(self.session.references.parse(text), self.session.text_of)

    def _needs(self, result: Any) -> tuple[str, ...]:
        """The nodes whose values a branch's result holds, or refers to in its texts."""
        needs: list[str] = []
        for leaf in leaves(result):
            needs += [leaf.node_id] if isinstance(leaf, Value) else []
            needs += [ref.node_id for ref in self._refs(leaf)]
        return tuple(dict.fromkeys(needs))

    async def drain(self) -> None:
        """Waits until no branch runs and no node is on its way."""
        while True:
            if self._branches:
                await asyncio.wait(list(self._branches))
            elif self.executor is not None and self.session.num_unsettled:
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

    async def perform(self, call: Callable[[], Any]) -> Any:
        """Runs a whole program: its function, its branches, all its calls.

        Raises:
            NodeFailedError: a call failed and the program didn't deal with it.
        """
        try:
            result = await self.run_function(call)
            self._has_returned = True
            self._close_if_ended()
            result = await self.resolve_all(result)
        except NodeFailedError as error:
            await self.drain()  # what doesn't depend on the failure may finish
            error.values = self.session.values()
            raise
        except BaseException as error:
            if self.executor is not None:
                self.executor.abort()  # before any await, so that what isn't sent never is
            if isinstance(error, ESCAPES):
                raise Escaped(error) from error
            raise
        await self.drain()
        failure = self.session.unhandled_failure()
        if failure is not None:
            raise failure
        return result

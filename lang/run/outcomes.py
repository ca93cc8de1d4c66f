"""Outcomes: a run's graph, the result or error of each node, and the ways to wait for them."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ramet.lang.base.errors import (
    DependencyFailedError,
    ForeignValueError,
    GraphError,
    NodeFailedError,
    TextTooLongError,
    UnresolvedValueError,
)
from ramet.lang.base.frames import caller_place
from ramet.lang.base.greenlets import can_switch, switch_and_wait
from ramet.lang.graph.graph import RequestGraph
from ramet.lang.graph.node_graph import OpenEnd
from ramet.lang.graph.nodes import CALL_KINDS, Fork, Node, Text, ToolCall
from ramet.lang.graph.references import Ref, ReferenceTable
from ramet.lang.run.events import EventLog, NodeAdded, NodeFailed, NodeFinished
from ramet.lang.run.prompts import formatted, messages_of
from ramet.lang.run.run_options import RunOptions
from ramet.lang.types.values import NodeResult, Value
from ramet.runtime.api.fork_guard import ForkGuard

current_join: ContextVar[str | None] = ContextVar("ramet_current_join", default=None)
"""In the code of a spawned branch: the node that its result will settle."""


class DryRunStopped(BaseException):
    """Ends a dry run, which has no model, where the program reads a value."""

    def __init__(self, node_id: str, where: str) -> None:
        super().__init__(node_id)
        self.node_id = node_id
        self.where = where


class Slot:
    """The slot of a node's future outcome."""

    __slots__ = ("_settled", "error", "result")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.result: NodeResult | None = None
        self.error: BaseException | None = None
        self._settled: asyncio.Future[None] = loop.create_future()

    @property
    def is_settled(self) -> bool:
        return self.result is not None or self.error is not None

    def settle(self, result: NodeResult | None, error: BaseException | None = None) -> None:
        if not self.is_settled:
            self.result, self.error = result, error
            if not self._settled.done():
                self._settled.set_result(None)

    def __getstate__(self) -> tuple[NodeResult | None, BaseException | None]:
        return self.result, self.error

    def __setstate__(self, outcome: tuple[NodeResult | None, BaseException | None]) -> None:
        self.result, self.error = outcome

    async def wait(self) -> None:
        """Waits until the outcome is there; cancelling the waiter harms no other."""
        if not self.is_settled:
            await asyncio.shield(self._settled)


class Outcomes:
    """The graph of one run and the outcomes of its nodes.

    Everything but ``wait_for`` and ``wait_async`` belongs to the thread of the run's event loop.
    """

    def __init__(
        self, name: str, options: RunOptions, loop: asyncio.AbstractEventLoop, *, is_dry_run: bool
    ) -> None:
        self.program_id = f"{name}-{secrets.token_hex(6)}"
        self.graph = RequestGraph(name)
        self.options = options
        self.log = EventLog()
        self.references = ReferenceTable()
        self.is_dry_run = is_dry_run
        self.num_unsettled = 0
        self.loop = loop
        self._thread_id = 0
        self._home = ForkGuard()
        self._slots: dict[str, Slot] = {}
        self._places: dict[str, str] = {}
        self._handled: set[str] = set()
        self._waits: dict[str, set[str]] = {}
        self._text_len = 0

    def __getstate__(self) -> dict[str, Any]:
        """All but what belongs to this process; of a run that has ended."""
        return {k: v for k, v in self.__dict__.items() if k not in ("loop", "_home")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _home=ForkGuard())

    def begin(self) -> None:
        """Binds the run to the calling thread, which runs the loop."""
        self._thread_id = threading.get_ident()

    @property
    def is_on_thread(self) -> bool:
        """Whether the caller is on the thread of the run's event loop."""
        return threading.get_ident() == self._thread_id

    def require_home(self) -> None:
        """Raises ForkedProcessError in a forked process, in which the run doesn't go on."""
        self._home.require("the run")

    # Nodes.

    def add(self, node: Node) -> None:
        """Adds a node to the graph."""
        self.graph.add(node)
        self._places[node.id] = caller_place() or self._places.get(current_join.get() or "", "")
        if not isinstance(node, Text | Fork):
            self._slots[node.id] = Slot(self.loop)
            self.num_unsettled += 1
        self.log.append(NodeAdded(node))

    def slot(self, node_id: str) -> Slot:
        """The node's slot."""
        try:
            return self._slots[node_id]
        except KeyError:
            raise GraphError(f"node {node_id!r} has no value") from None

    def unsettled(self) -> list[str]:
        """The nodes that have no outcome yet."""
        return [node_id for node_id, slot in self._slots.items() if not slot.is_settled]

    def finish(self, node_id: str, result: NodeResult) -> None:
        """Settles a node with its result."""
        slot = self.slot(node_id)
        if not slot.is_settled:
            slot.settle(result)
            self.num_unsettled -= 1
            self.log.append(NodeFinished(self.graph[node_id], result))

    def fail(self, node_id: str, error: BaseException) -> bool:
        """Settles a node with an error; False if it was settled before."""
        slot = self.slot(node_id)
        if slot.is_settled:
            return False
        slot.settle(None, error)
        self.num_unsettled -= 1
        self.log.append(NodeFailed(self.graph[node_id], error))
        return True

    def result_of(self, node_id: str) -> NodeResult:
        """The result of a node that has finished."""
        result = self.slot(node_id).result
        if result is None:
            raise GraphError(f"node {node_id!r} hasn't finished")
        return result

    def text_of(self, ref: Ref) -> str:
        """The text of a reference to a finished node.

        Raises:
            ReferenceFormatError: the value can't be formatted as the reference asks.
            TextTooLongError: values have made more text than ``max_text_len``. Each join may be
                of others, so that a few nodes can ask for a text of any length.
        """
        text = formatted(self.result_of(ref.node_id), ref.spec)
        limit = self.options.max_text_len
        if limit is not None:
            self._text_len += len(text) + 1
            if self._text_len > limit:
                raise TextTooLongError(f"the values of this run make more than {limit} characters")
        return text

    def failure_among(self, node_ids: frozenset[str]) -> DependencyFailedError | None:
        """The error of a node that needs these, if one of them failed."""
        for node_id in sorted(node_ids):
            error = self.slot(node_id).error
            if isinstance(error, DependencyFailedError):
                return DependencyFailedError(error.failed_id, self.graph[error.failed_id].label)
            if error is not None:
                return DependencyFailedError(node_id, self.graph[node_id].label)
        return None

    def rendered(self, tail: str | None) -> list[dict[str, str]]:
        """The messages of a state; waits for its calls."""
        nodes = self.graph.chain(tail)
        for node in nodes:
            if isinstance(node, CALL_KINDS):
                self.wait_for(node.id)
            elif isinstance(node, Text):
                for ref in node.refs():
                    self.wait_for(ref.node_id)
        messages = messages_of(nodes, self.text_of)
        return [{"role": message.role or "", "content": message.content} for message in messages]

    # Values.

    def reference(self, ref: Ref) -> str:
        """The token that stands for a value in text."""
        return self.references.token(ref)

    def ref_to(self, value: Value[Any]) -> Ref:
        """The reference to a value of this run.

        Raises:
            ForeignValueError: a value of another run.
        """
        if value._results is not self:
            raise ForeignValueError("this value belongs to another run; use its .value")
        return Ref(value.node_id)

    def is_settled(self, node_id: str) -> bool:
        """Whether reading the node would not wait."""
        return self.slot(node_id).is_settled

    def wait_for(self, node_id: str) -> NodeResult:
        """Waits for a node: by switching in a program, by blocking in another thread."""
        slot = self.slot(node_id)
        if not slot.is_settled:
            self._stop_dry_run(node_id)
            self.require_home()
            if not self.is_on_thread:
                asyncio.run_coroutine_threadsafe(slot.wait(), self.loop).result()
            elif can_switch():
                with self._waiting_for(node_id):
                    switch_and_wait(slot.wait())
            else:
                raise UnresolvedValueError(
                    f"{self.graph[node_id].label!r} isn't there yet, and this code runs on the "
                    "event loop: await the value"
                )
        return self._outcome(node_id)

    async def wait_async(self, node_id: str) -> NodeResult:
        """Waits for a node on the caller's event loop."""
        slot = self.slot(node_id)
        if not slot.is_settled:
            self._stop_dry_run(node_id)
            self.require_home()
            if asyncio.get_running_loop() is self.loop:
                with self._waiting_for(node_id):
                    await slot.wait()
            else:
                waiting = asyncio.run_coroutine_threadsafe(slot.wait(), self.loop)
                await asyncio.wrap_future(waiting)
        return self._outcome(node_id)

    @contextmanager
    def _waiting_for(self, node_id: str) -> Iterator[None]:
        """Notes that the current branch waits, and refuses to wait for what waits for it."""
        branch = current_join.get()
        if branch is None:
            yield
            return
        stack, seen = [node_id], set()
        while stack:
            needed = stack.pop()
            if needed == branch:
                raise GraphError(f"{self.graph[branch].label!r} waits for its own result")
            if needed not in seen and not self.slot(needed).is_settled:
                seen.add(needed)
                stack.extend(self.graph.needs(needed))
                stack.extend(self._waits.get(needed, ()))
        waits = self._waits.setdefault(branch, set())
        waits.add(node_id)
        try:
            yield
        finally:
            waits.discard(node_id)

    def _stop_dry_run(self, node_id: str) -> None:
        if self.is_dry_run:
            raise DryRunStopped(node_id, caller_place())

    def _outcome(self, node_id: str) -> NodeResult:
        slot = self.slot(node_id)
        if slot.error is not None:
            self._handled.add(node_id)
            if isinstance(slot.error, DependencyFailedError):
                self._handled.add(slot.error.failed_id)
            raise self._failure(node_id, slot.error)
        assert slot.result is not None
        return slot.result

    def _failure(self, node_id: str, error: BaseException) -> NodeFailedError:
        if isinstance(error, NodeFailedError):  # of a branch: what failed in it
            return NodeFailedError(
                error.node_id,
                error.node_name,
                error.__cause__ or error,
                self.values(),
                error.place,
            )
        if isinstance(error, DependencyFailedError):
            node_id = error.failed_id
            error = self.slot(node_id).error or error
        label, place = self.graph[node_id].label, self._places[node_id]
        return NodeFailedError(node_id, label, error, self.values(), place)

    def values(self) -> dict[str, Any]:
        """The finished values, by variable: the first state's, then those that only branches
        have; of several branches, all as a list."""
        first: dict[str, Any] = {}
        branches: dict[str, list[Any]] = {}
        for node in self.graph:
            name = getattr(node, "name", "")
            slot = self._slots.get(node.id)
            if not name or slot is None or slot.result is None:
                continue
            if self.graph.branch_of(node.id):
                branches.setdefault(name, []).append(slot.result.value)
            else:
                first[name] = slot.result.value
        lists = {name: v[0] if len(v) == 1 else v for name, v in branches.items()}
        return {**lists, **first}

    def unhandled_failure(self) -> NodeFailedError | None:
        """The first failure that the program has not met by reading a value.

        A tool whose value nothing uses may fail: its NodeFailed event reports that.
        """
        used = {
            error.failed_id
            for node_id, slot in self._slots.items()
            if isinstance(error := slot.error, DependencyFailedError)
            and node_id not in self._handled
        }
        for node_id, slot in self._slots.items():
            error = slot.error
            if error is None or node_id in self._handled:
                continue
            is_unused = isinstance(self.graph[node_id], ToolCall) and node_id not in used
            if not isinstance(error, DependencyFailedError) and not is_unused:
                return self._failure(node_id, error)
        return None

    def stopped_at(self, branch: str, stop: DryRunStopped) -> None:
        """Notes where the dry run of a branch ended."""
        self.graph.open_ends.append(OpenEnd(branch, stop.node_id, stop.where))

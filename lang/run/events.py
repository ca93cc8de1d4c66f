"""The events of a run, and the log that holds them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass

from ramet.lang.graph.nodes import Node
from ramet.lang.types.values import NodeResult
from ramet.runtime.api.fork_guard import ForkGuard

MAX_REPR_LEN = 60
"""Characters of a text in an event's representation."""


class _NodeEvent:
    """Base of the events of one node: shown by the node's name and id."""

    __slots__ = ()
    node: Node

    def __repr__(self) -> str:
        names = (name for name in self.__dataclass_fields__ if name != "node")  # type: ignore[attr-defined]
        others = "".join(f", {_brief(getattr(self, name))}" for name in names)
        return f"{type(self).__name__}({self.node.label!r}, {self.node.id}{others})"


def _brief(value: object) -> str:
    text = repr(value.text if isinstance(value, NodeResult) else value)
    return text if len(text) <= MAX_REPR_LEN else f"{text[:MAX_REPR_LEN]}..."


@dataclass(frozen=True, slots=True, repr=False)
class NodeAdded(_NodeEvent):
    """The program made a node."""

    node: Node


@dataclass(frozen=True, slots=True, repr=False)
class NodeStarted(_NodeEvent):
    """All that a node needs is there, and it was sent."""

    node: Node


@dataclass(frozen=True, slots=True, repr=False)
class TextPiece(_NodeEvent):
    """New text of a Gen."""

    node: Node
    text: str


@dataclass(frozen=True, slots=True, repr=False)
class NodeFinished(_NodeEvent):
    """A node has its value."""

    node: Node
    result: NodeResult


@dataclass(frozen=True, slots=True, repr=False)
class NodeFailed(_NodeEvent):
    """A node failed, or was given up because one that it needs failed."""

    node: Node
    error: BaseException


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The last event of every run."""

    error: BaseException | None


RunEvent = NodeAdded | NodeStarted | TextPiece | NodeFinished | NodeFailed | RunEnded


class EventLog:
    """The events of one run, in order. Any number of readers, each from the beginning.

    Events are appended on the run's loop; readers may be threads or coroutines of any loop. In a
    forked process only the log of a run that had ended before can be read.
    """

    def __init__(self) -> None:
        self._home = ForkGuard()
        self._events: list[RunEvent] = []
        self._closed = False
        self._lock = threading.Lock()
        self._wakers: list[Callable[[], None]] = []

    def __getstate__(self) -> list[RunEvent]:
        return self.snapshot()

    def __setstate__(self, events: list[RunEvent]) -> None:
        self.__init__()  # type: ignore[misc]
        for event in events:
            self.append(event)

    def append(self, event: RunEvent) -> None:
        """Adds an event and wakes the readers; after RunEnded nothing is added."""
        with self._lock:
            if self._closed:
                return
            self._events.append(event)
            self._closed = isinstance(event, RunEnded)
            wakers, self._wakers = self._wakers, []
        for wake in wakers:
            wake()

    def snapshot(self) -> list[RunEvent]:
        """The events so far."""
        return list(self._events)

    def _next(self, index: int, wake: Callable[[], None]) -> RunEvent | None:
        """Event ``index``, or None after arranging that ``wake`` is called."""
        if not self._closed:
            self._home.require("the run")
        with self._lock:
            if index < len(self._events):
                return self._events[index]
            self._wakers.append(wake)
            return None

    def __iter__(self) -> Iterator[RunEvent]:
        index = 0
        arrived = threading.Event()
        while True:
            event = self._next(index, arrived.set)
            if event is None:
                arrived.wait()
                arrived.clear()
                continue
            yield event
            if isinstance(event, RunEnded):
                return
            index += 1

    async def __aiter__(self) -> AsyncIterator[RunEvent]:
        async for events in self.batches():
            for event in events:
                yield event

    async def batches(self) -> AsyncIterator[list[RunEvent]]:
        """The events, those that are there already together."""
        loop = asyncio.get_running_loop()
        index = 0
        arrived = asyncio.Event()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(arrived.set)

        while True:
            event = self._next(index, wake)
            if event is None:
                await arrived.wait()
                arrived.clear()
                continue
            events = self._events[index:]
            yield events
            if isinstance(events[-1], RunEnded):
                return
            index += len(events)

"""Runs a program over a batch of arguments."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from ramet.lang.base.errors import UsageError
from ramet.lang.batch_record import BatchRecord
from ramet.lang.progress import progress_bar
from ramet.lang.run.run import Run
from ramet.lang.trace.trace import Trace

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Startable(Protocol[T_co]):
    """A program, as far as a batch needs it."""

    name: str

    def start_item(
        self,
        arguments: Mapping[str, Any],
        recorded: Trace | None,
        loop: asyncio.AbstractEventLoop | None,
    ) -> Run[T_co]: ...

    def check_arguments(self, **arguments: Any) -> None: ...


@dataclass(frozen=True, kw_only=True)
class BatchOptions:
    """The settings of a batch.

    Attributes:
        max_concurrency: most runs at the same time.
        reorder: runs start in ``sharing_order``, and else in the batch's.
        progress: show a bar.
        resume: a file that keeps the runs that have ended well; those in it aren't asked again.
    """

    max_concurrency: int = 64
    reorder: bool = True
    progress: bool = False
    resume: str | Path | None = None

    def __post_init__(self) -> None:
        if self.max_concurrency < 1:
            raise UsageError("max_concurrency must be at least 1")


class Batch(Generic[T]):
    """One batch: checked, and ready to run.

    Raises:
        UsageError: an item is no mapping, or the program doesn't take its arguments.
    """

    def __init__(
        self, program: Startable[T], items: Sequence[Mapping[str, Any]], options: BatchOptions
    ) -> None:
        self._program = program
        self._items = items
        self._options = options
        for index, arguments in enumerate(items):
            if not isinstance(arguments, Mapping):
                raise UsageError(f"item {index} of the batch is not a mapping of arguments")
            try:
                program.check_arguments(**arguments)
            except TypeError as error:
                raise UsageError(f"item {index} of the batch: {error}") from None
        self._record = None if options.resume is None else BatchRecord(options.resume)
        self._recorded = [self._record.take(item) if self._record else None for item in items]
        order = sharing_order(items) if options.reorder else list(range(len(items)))
        self._order = iter(order)
        self._runs: dict[int, Run[T]] = {}

    def run(self) -> list[Run[T]]:
        """Waits for all runs; they come back in the batch's order."""
        ended = dict(self.as_completed())
        return [ended[index] for index in range(len(self._items))]

    def as_completed(self) -> Iterator[tuple[int, Run[T]]]:
        """Each run with its index, as it ends. Closing the iterator cancels what still runs."""
        ended: queue.SimpleQueue[int] = queue.SimpleQueue()
        with progress_bar(
            self._program.name, len(self._items), shown=self._options.progress
        ) as note_end:
            try:
                for _ in range(self._options.max_concurrency):
                    self._start_next(ended.put, None)
                for _ in range(len(self._items)):
                    index = ended.get()
                    self._start_next(ended.put, None)
                    yield self._end(index, note_end)
            finally:
                self._cancel()

    async def arun(self) -> list[Run[T]]:
        """``run`` on the caller's event loop."""
        async with aclosing(self.aas_completed()) as runs:
            ended = {index: run async for index, run in runs}
        return [ended[index] for index in range(len(self._items))]

    async def aas_completed(self) -> AsyncGenerator[tuple[int, Run[T]]]:
        """``as_completed`` on the caller's event loop."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Queue[int] = asyncio.Queue()

        def put(index: int) -> None:
            loop.call_soon_threadsafe(ended.put_nowait, index)

        with progress_bar(
            self._program.name, len(self._items), shown=self._options.progress
        ) as note_end:
            try:
                for _ in range(self._options.max_concurrency):
                    self._start_next(put, loop)
                for _ in range(len(self._items)):
                    index = await ended.get()
                    self._start_next(put, loop)
                    yield self._end(index, note_end)
            finally:
                self._cancel()

    def _start_next(self, put: Any, loop: asyncio.AbstractEventLoop | None) -> None:
        index = next(self._order, None)
        if index is not None:
            run = self._program.start_item(self._items[index], self._recorded[index], loop)
            self._runs[index] = run
            run.call_when_done(lambda: put(index))

    def _end(self, index: int, note_end: Any) -> tuple[int, Run[T]]:
        run = self._runs.pop(index)
        if self._record is not None and self._recorded[index] is None and run.error is None:
            self._record.add(self._items[index], run.trace)
        note_end(run.error is not None)
        return index, run

    def _cancel(self) -> None:
        for run in self._runs.values():
            run.cancel()


def sharing_order(batch: Sequence[Mapping[str, Any]]) -> list[int]:
    """The batch's indices, ordered so that prompts with common prefixes are neighbours.

    Runs are sorted by the argument that has the fewest values, then by the one that has the next
    fewest, and so on, since prompts most likely share what differs least. Values are sorted by
    their texts, which makes common prefixes neighbours, too. The sort is stable.
    """
    texts = [
        {name: value if isinstance(value, str) else repr(value) for name, value in item.items()}
        for item in batch
    ]
    names = dict.fromkeys(name for item in texts for name in item)
    num_values = {name: len({item.get(name) for item in texts}) for name in names}
    by_sharing = sorted(names, key=lambda name: (num_values[name], name))
    return sorted(
        range(len(batch)), key=lambda index: [texts[index].get(name, "") for name in by_sharing]
    )

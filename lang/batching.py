"""Many runs of one program."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from ramet.lang.base.errors import UsageError
from ramet.lang.run.run import Run

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Startable(Protocol[T_co]):
    """A program, as far as a batch needs it."""

    name: str

    def start(self, **arguments: Any) -> Run[T_co]: ...

    def check_arguments(self, **arguments: Any) -> None: ...


def run_batch(
    program: Startable[T],
    batch: Sequence[Mapping[str, Any]],
    max_concurrency: int,
    *,
    reorder: bool = True,
    progress: bool = False,
) -> list[Run[T]]:
    """Runs ``program(**arguments)`` for each mapping, at most ``max_concurrency`` at once.

    With ``reorder``, runs start in ``sharing_order``; they come back in the batch's order. With
    ``progress``, the terminal shows how many have ended.
    """
    if max_concurrency < 1:
        raise UsageError("max_concurrency must be at least 1")
    for index, arguments in enumerate(batch):
        if not isinstance(arguments, Mapping):
            raise UsageError(f"item {index} of the batch is no mapping of arguments")
        try:
            program.check_arguments(**arguments)
        except TypeError as error:
            raise UsageError(f"item {index} of the batch: {error}") from None
    runs: dict[int, Run[T]] = {}
    places = threading.Semaphore(max_concurrency)
    try:
        with _progress(program.name, len(batch), shown=progress) as note_end:
            for index in sharing_order(batch) if reorder else range(len(batch)):
                places.acquire()
                run = runs[index] = program.start(**batch[index])
                run._done.add_done_callback(lambda _: places.release())
                run._done.add_done_callback(note_end)
            concurrent.futures.wait([run._done for run in runs.values()])
    except BaseException:
        for run in runs.values():
            run.cancel()
        concurrent.futures.wait([run._done for run in runs.values()], timeout=5)
        raise
    return [runs[index] for index in range(len(batch))]


@contextmanager
def _progress(name: str, total: int, *, shown: bool) -> Iterator[Callable[[object], None]]:
    """What is to be called when a run has ended: it moves the bar that is shown, if one is."""
    if not shown:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task(name, total=total)
        yield lambda _: bar.advance(task)


def sharing_order(batch: Sequence[Mapping[str, Any]]) -> list[int]:
    """The batch's indices, in an order in which prompts that begin alike are neighbours.

    What differs least between runs is what prompts are likeliest to share: so runs are grouped by
    the argument that has the fewest values, within a group by the one that has the next fewest,
    and so on; values stand in the order of their texts, so that those that begin alike are
    neighbours as well. Runs that are equal in all of it keep their order.
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

"""Many runs of one program."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from ramet.lang.errors import UsageError
from ramet.lang.run import Run

if TYPE_CHECKING:
    from ramet.lang.program import Program

T = TypeVar("T")


def run_batch(
    program: Program[..., T], batch: list[Mapping[str, Any]], max_concurrency: int
) -> list[Run[T]]:
    """Runs ``program(**arguments)`` for each mapping, at most ``max_concurrency`` at once."""
    if max_concurrency < 1:
        raise UsageError("max_concurrency must be at least 1")
    for index, arguments in enumerate(batch):
        if not isinstance(arguments, Mapping):
            raise UsageError(f"item {index} of the batch is no mapping of arguments")
        try:
            program.check_arguments(**arguments)
        except TypeError as error:
            raise UsageError(f"item {index} of the batch: {error}") from None
    runs: list[Run[T]] = []
    places = threading.Semaphore(max_concurrency)
    try:
        for arguments in batch:
            places.acquire()
            run = program.start(**arguments)
            runs.append(run)
            run._done.add_done_callback(lambda _: places.release())
        concurrent.futures.wait([run._done for run in runs])
    except BaseException:
        for run in runs:
            run.cancel()
        concurrent.futures.wait([run._done for run in runs], timeout=5)
        raise
    return runs

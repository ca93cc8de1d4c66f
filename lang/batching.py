"""Many runs of one program."""

from __future__ import annotations

import concurrent.futures
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
    runs: dict[int, Run[T]] = {}
    going: dict[concurrent.futures.Future[Any], int] = {}
    try:
        for index, arguments in enumerate(batch):
            if len(going) >= max_concurrency:
                done, _ = concurrent.futures.wait(
                    going, return_when=concurrent.futures.FIRST_COMPLETED
                )
                for future in done:
                    del going[future]
            runs[index] = program.start(**arguments)
            going[runs[index]._done] = index
        concurrent.futures.wait(going)
    except BaseException:
        for run in runs.values():
            run.cancel()
        concurrent.futures.wait([run._done for run in runs.values()], timeout=5)
        raise
    return [runs[index] for index in range(len(batch))]

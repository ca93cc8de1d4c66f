"""Runs work of a client-chosen size in a thread, so that the event loop stays responsive."""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ramet.runtime.api.errors import RequestAbortedError

INLINE_LEN = 20_000
"""Characters or token ids up to which encoding is cheaper than handing it to a thread."""

client_has_gone: contextvars.ContextVar[Callable[[], bool]] = contextvars.ContextVar(
    "client_has_gone", default=lambda: False
)
"""Asks whether the client that work is done for has disconnected."""

_NUM_THREADS = 2

T = TypeVar("T")


class _Pool:
    """Threads for long work alone; asyncio's default pool stays free for short waits."""

    def __init__(self) -> None:
        self.start()
        os.register_at_fork(after_in_child=self.start)

    def start(self) -> None:
        self.threads = ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="ramet-long-work")


_POOL = _Pool()


async def run_off_loop(work: Callable[[], T], *, is_long: bool) -> T:
    """Returns ``work()``, run in a thread if it ``is_long`` and inline otherwise.

    Long work is not started once its client has gone or its caller is cancelled.

    Raises:
        RequestAbortedError: the client has gone.
    """
    if not is_long:
        return work()
    context = contextvars.copy_context()
    has_gone = client_has_gone.get()

    def run() -> T:
        if has_gone():
            raise RequestAbortedError("the client has disconnected")
        return context.run(work)

    return await asyncio.get_running_loop().run_in_executor(_POOL.threads, run)

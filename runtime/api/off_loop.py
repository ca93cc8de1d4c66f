"""Runs work of a client-chosen size in a thread, so that the event loop stays responsive."""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import Callable
from typing import TypeVar

from ramet.runtime.api.errors import RequestAbortedError
from ramet.runtime.api.work_pool import WorkPool

INLINE_LEN = 20_000
"""Characters or token ids up to which encoding is cheaper than handing it to a thread."""

client_has_gone: contextvars.ContextVar[Callable[[], bool]] = contextvars.ContextVar(
    "client_has_gone", default=lambda: False
)
"""Asks whether the client that work is done for has disconnected."""

work_owner: contextvars.ContextVar[str] = contextvars.ContextVar("work_owner", default="")
"""The tenant that work is done for: tenants share the threads."""

_NUM_THREADS = 3

T = TypeVar("T")


class _Pool:
    """Threads for long work alone; asyncio's default pool stays free for short waits."""

    def __init__(self) -> None:
        self.start()
        os.register_at_fork(after_in_child=self.start)

    def start(self) -> None:
        self.threads = WorkPool(_NUM_THREADS, "ramet-long-work")


_POOL = _Pool()


async def run_off_loop(work: Callable[[], T], *, is_long: bool) -> T:
    """Returns ``work()``, run in a thread if it ``is_long`` and inline otherwise.

    Long work is not started once its client has gone or its caller is cancelled, and ends early
    where it calls ``stop_if_gone``.

    Raises:
        RequestAbortedError: the client has gone.
    """
    if not is_long:
        return work()
    context = contextvars.copy_context()

    def run() -> T:
        stop_if_gone()
        return work()

    return await asyncio.wrap_future(
        _POOL.threads.submit(work_owner.get(), lambda: context.run(run))
    )


def stop_if_gone() -> None:
    """For work that takes long: raises ``RequestAbortedError`` once its client has gone."""
    if client_has_gone.get()():
        raise RequestAbortedError("the client has disconnected")

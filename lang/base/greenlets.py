"""Lets a plain function wait on an event loop without blocking a thread.

A ``def`` program runs in a greenlet on the loop's own thread. When it needs something that isn't
there yet it switches to the coroutine that drives it, which awaits that and switches back.
Thousands of programs cost one thread.
"""

from __future__ import annotations

import contextvars
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from greenlet import getcurrent, greenlet

T = TypeVar("T")


class _ProgramGreenlet(greenlet):  # type: ignore[misc, unused-ignore]
    """Marks the greenlets that ``run_switching`` drives."""


def can_switch() -> bool:
    """Whether the caller runs inside ``run_switching``, so that ``switch_and_wait`` works."""
    return isinstance(getcurrent(), _ProgramGreenlet)


def switch_and_wait(awaitable: Awaitable[T]) -> T:
    """Waits for ``awaitable`` without blocking the event loop; only where ``can_switch()``."""
    current = getcurrent()
    assert isinstance(current, _ProgramGreenlet)
    assert current.parent is not None
    return cast(T, current.parent.switch(awaitable))


async def run_switching(function: Callable[[], T]) -> T:
    """Runs a plain function that may call ``switch_and_wait``.

    Cancelling this coroutine raises CancelledError in the function, where it waits.
    """
    runner = _ProgramGreenlet(function, getcurrent())
    runner.gr_context = contextvars.copy_context()
    outcome: Any = runner.switch()
    while not runner.dead:
        try:
            value = await outcome
        except BaseException:
            outcome = runner.throw(*sys.exc_info())
        else:
            outcome = runner.switch(value)
    return cast(T, outcome)

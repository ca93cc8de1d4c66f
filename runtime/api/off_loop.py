"""Runs work of a client-chosen size in a thread, so that the event loop stays responsive."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

INLINE_LEN = 20_000
"""Characters or token ids up to which encoding is cheaper than handing it to a thread."""

T = TypeVar("T")


async def run_off_loop(work: Callable[[], T], *, is_long: bool) -> T:
    """Returns ``work()``, run in a thread if it ``is_long`` and inline otherwise."""
    return await asyncio.to_thread(work) if is_long else work()

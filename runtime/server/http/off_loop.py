"""Work that a client can make long, done where other clients' streams don't wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def off_loop(work: Callable[[], T], *, is_long: bool) -> T:
    """What ``work`` returns: from another thread if it ``is_long``, else at once.

    Short work takes less time than handing it over would.
    """
    return await asyncio.to_thread(work) if is_long else work()

"""Long work is shared among tenants, and ends when its client has gone."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest

from ramet.runtime.api.errors import RequestAbortedError
from ramet.runtime.api.off_loop import client_has_gone, run_off_loop, stop_if_gone
from ramet.runtime.api.work_pool import WorkPool


def test_an_owner_with_much_work_keeps_no_other_waiting() -> None:
    pool, go, done = WorkPool(3, "test"), threading.Event(), []
    many = [pool.submit("greedy", lambda: go.wait(60)) for _ in range(10)]
    pool.submit("modest", lambda: done.append(1)).result(timeout=60)
    assert done == [1]
    assert sum(each.running() for each in many) <= 2
    go.set()
    assert all(each.result(timeout=60) for each in many)


def test_owners_take_turns() -> None:
    pool, go, order = WorkPool(2, "test"), threading.Event(), []
    held = [pool.submit(owner, lambda: go.wait(60)) for owner in ("x", "y")]
    owners = ["a", "a", "a", "b", "b", "c"]
    later = [pool.submit(owner, partial(order.append, owner)) for owner in owners]
    go.set()
    for each in [*held, *later]:
        each.result(timeout=60)
    assert sorted(order) == owners
    assert order.index("c") < 5  # not behind all that came before it
    assert order.index("b") < 3


def test_cancelled_work_is_not_begun_and_a_fault_is_its_own() -> None:
    pool, go = WorkPool(2, "test"), threading.Event()
    held = pool.submit("a", lambda: go.wait(60))
    cancelled = pool.submit("a", lambda: pytest.fail("begun"))
    assert cancelled.cancel()
    go.set()
    assert held.result(timeout=60)
    with pytest.raises(ZeroDivisionError):
        pool.submit("a", lambda: 1 // 0).result(timeout=60)
    assert pool.submit("a", lambda: 5).result(timeout=60) == 5


def test_work_that_has_begun_stops_when_its_client_has_gone() -> None:
    gone = threading.Event()

    def work() -> None:
        while True:
            stop_if_gone()
            gone.set()

    async def check() -> None:
        client_has_gone.set(gone.is_set)
        with pytest.raises(RequestAbortedError):
            await run_off_loop(work, is_long=True)

    asyncio.run(check())

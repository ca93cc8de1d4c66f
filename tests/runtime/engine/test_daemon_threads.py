"""Threads that do tasks in turn, and that a program doesn't wait for when it ends."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from ramet.runtime.engine.daemon_threads import DaemonThreads


def test_tasks_are_done_in_turn_and_their_errors_are_theirs():
    threads = DaemonThreads(1, "test")
    order: list[int] = []
    numbers = [threads.submit(order.append, number) for number in range(20)]
    failed = threads.submit(int, "no number")
    with pytest.raises(ValueError, match="no number"):
        failed.result()
    assert all(each.done() for each in numbers)
    assert order == list(range(20))
    assert threads.submit(lambda: threading.current_thread().name).result() == "test-0"
    threads.close()


def test_as_many_run_at_a_time_as_there_are_threads():
    threads = DaemonThreads(3, "test")
    meet = threading.Barrier(3)
    tasks = [threads.submit(meet.wait) for _ in range(3)]
    assert sorted(each.result() for each in tasks) == [0, 1, 2]
    threads.close()


def test_closing_waits_for_what_runs_and_cancels_what_waits():
    threads = DaemonThreads(1, "test")
    running, go_on = threading.Event(), threading.Event()

    def task() -> str:
        running.set()
        go_on.wait()
        return "done"

    first, second = threads.submit(task), threads.submit(task)
    running.wait()
    closing = threading.Thread(target=threads.close)
    closing.start()
    while not second.cancelled():
        pass
    assert closing.is_alive()
    assert not first.done()
    go_on.set()
    closing.join()
    assert first.result() == "done"
    threads.close()
    assert threads.submit(task).cancelled()


def test_a_program_ends_without_waiting_for_them():
    program = (
        "import threading\n"
        "from ramet.runtime.engine.daemon_threads import DaemonThreads\n"
        "DaemonThreads(2, 'test').submit(threading.Event().wait)\n"
        "print('ends')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=True
    )
    assert done.stdout == "ends\n"

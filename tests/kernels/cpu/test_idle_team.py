"""A team that has nothing to do takes no processor's time."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest

from ramet.kernels.cpu.program import Program, Stage, Team
from ramet.kernels.cpu_support import step as words
from ramet.kernels.cpu_support.compiled_op import op
from ramet.kernels.cpu_support.memory import load_i64, next_task, store_i64

TASKS = Path("/proc/self/task")
pytestmark = pytest.mark.skipif(not TASKS.exists(), reason="looks into /proc")


@op
def count_up(stage: int, step: int, counter: int, thread: int) -> None:
    """Writes each of eight tasks' numbers, one more, to the address in the stage."""
    while True:
        task = next_task(counter)
        if task >= 8:
            break
        store_i64(load_i64(stage, 2), task, task + 1)


def processor_seconds(thread_ids: list[int]) -> list[float]:
    """What these threads of this process have had of a processor."""
    texts = [(TASKS / str(each) / "schedstat").read_text() for each in thread_ids]
    return [int(text.split()[0]) / 1e9 for text in texts]


def test_threads_sleep_between_steps():
    before = {int(each.name) for each in TASKS.iterdir()}
    team = Team(3)
    out = np.zeros(8, np.int64)
    program = Program([Stage(count_up, {2: out.ctypes.data})])
    team.run(program, np.zeros(words.SIZE, np.int64))
    assert out.tolist() == [*range(1, 9)]
    workers = [int(each.name) for each in TASKS.iterdir() if int(each.name) not in before]
    assert len(workers) == 2
    assert threading.get_native_id() not in workers
    time.sleep(0.1)  # what a step leaves to do
    start = processor_seconds(workers)
    time.sleep(0.5)
    spent = np.subtract(processor_seconds(workers), start)
    team.close()
    assert spent.max() < 0.05  # one that spins has ten times that, or all that others leave it

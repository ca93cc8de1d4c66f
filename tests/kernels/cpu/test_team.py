"""A team gets through every phase, in order, however long one of its threads is held up."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import numpy as np
import pytest

from ramet.kernels.cpu.program import Program, Stage, Team
from ramet.kernels.cpu_support import step as words
from ramet.kernels.cpu_support.compiled_op import op
from ramet.kernels.cpu_support.memory import load_i64, next_task, store_i64

SOURCE, TARGET, NUM_TASKS, DELAY = 2, 3, 4, 5


@op
def copy_and_add(stage: int, step: int, counter: int, thread: int) -> None:
    """TARGET[i] = SOURCE[i] + 1; the first task takes long, so that the others wait for it."""
    while True:
        task = next_task(counter)
        if task >= load_i64(stage, NUM_TASKS):
            break
        value = load_i64(load_i64(stage, SOURCE), task)
        if task == 0:
            for i in range(load_i64(stage, DELAY)):
                store_i64(load_i64(stage, TARGET), task, i)
        store_i64(load_i64(stage, TARGET), task, value + 1)


def phases_adding_one(values: np.ndarray) -> Program:
    """Each phase writes the next row of ``values``: one more than the row before."""
    num_tasks = values.shape[1]
    stages = [
        Stage(
            copy_and_add,
            {
                SOURCE: values[phase].ctypes.data,
                TARGET: values[phase + 1].ctypes.data,
                NUM_TASKS: num_tasks,
                DELAY: 2_000_000 if phase % 8 == 0 else 10,  # milliseconds: waiting threads sleep
            },
        )
        for phase in range(len(values) - 1)
    ]
    return Program(stages)


def test_every_phase_sees_what_the_one_before_has_written():
    num_phases = 40
    values = np.zeros((num_phases + 1, 5), np.int64)
    program = phases_adding_one(values)
    team = Team(4)
    for _ in range(3):
        values[1:] = -1
        team.run(program, np.zeros(words.SIZE, np.int64))
        np.testing.assert_array_equal(values, np.arange(num_phases + 1)[:, None].repeat(5, 1))
    team.close()


def test_workers_do_all_the_work_while_the_caller_does_something_else():
    values = np.full((9, 5), -1, np.int64)
    values[0] = 0
    program = phases_adding_one(values)
    team = Team(2)

    def wait() -> None:
        deadline = time.monotonic() + 30
        while values[-1].min() < 8 and time.monotonic() < deadline:
            time.sleep(0.001)
        done.extend(values[-1].tolist())

    done: list[int] = []
    team.run(program, np.zeros(words.SIZE, np.int64), wait)
    assert done == [8] * 5
    team.close()


def test_a_step_is_finished_even_if_the_callers_overlapped_work_fails():
    values = np.full((9, 5), -1, np.int64)
    values[0] = 0
    program = phases_adding_one(values)
    team = Team(2)
    with pytest.raises(ZeroDivisionError):
        team.run(program, np.zeros(words.SIZE, np.int64), lambda: 1 // 0)
    assert values[-1].tolist() == [8] * 5
    team.close()


WITHOUT_FUTEX = """
import importlib.util, platform, sys
machine, platform.machine = platform.machine, lambda: "another"
from ramet.kernels.cpu_support import memory
platform.machine = machine
assert not memory.HAS_FUTEX
spec = importlib.util.spec_from_file_location("team_test", sys.argv[1])
tests = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tests)
tests.test_every_phase_sees_what_the_one_before_has_written()
"""


def test_systems_that_cannot_wait_for_a_word_wait_for_a_pipe(tmp_path):
    command = [sys.executable, "-c", WITHOUT_FUTEX, __file__]
    subprocess.run(command, env=os.environ | {"RAMET_CACHE_DIR": str(tmp_path)}, check=True)

"""A team gets through every phase, in order, however long one of its threads is held up."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np

from ramet.kernels.cpu import step as words
from ramet.kernels.cpu.compiled import op
from ramet.kernels.cpu.memory import load_i64, next_task, store_i64
from ramet.kernels.cpu.program import Program, Stage, Team

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


def test_every_phase_sees_what_the_one_before_has_written():
    num_phases, num_tasks = 40, 5
    values = np.zeros((num_phases + 1, num_tasks), np.int64)
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
        for phase in range(num_phases)
    ]
    program = Program(stages)
    team = Team(4)
    for _ in range(3):
        values[1:] = -1
        team.run(program, np.zeros(words.SIZE, np.int64))
        np.testing.assert_array_equal(values, np.arange(num_phases + 1)[:, None].repeat(5, 1))
    team.close()


WITHOUT_FUTEX = """
import importlib.util, platform, sys
machine, platform.machine = platform.machine, lambda: "another"
from ramet.kernels.cpu import memory
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

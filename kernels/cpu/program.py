"""A forward pass as data: a list of stages that every thread of a team works through.

A ``Stage`` names an operation and its operands (addresses and sizes). ``execute`` calls the stages
in order; tasks inside a stage go to whichever thread asks first, and a barrier follows each stage
whose results the next one reads. A new architecture is a function that emits stages; only a new
operation needs new compiled code.

A ``Team`` keeps its threads between steps. They sleep in a ``read`` of a pipe, outside the
interpreter, so a step starts without the interpreter lock and an idle team uses no core.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ramet.kernels.cpu import step as words
from ramet.kernels.cpu.compiled import Op, jit
from ramet.kernels.cpu.memory import barrier, call_op, load_i64, read_byte, write_byte

Int64Array = npt.NDArray[np.int64]

STAGE_WORDS = 40
_ADDRESS, _BARRIER = 0, 1
_FIRST_OPERAND = 2
_COUNTER_BYTES = 64
_CACHE_LINE = 64

# Words of a team's control record.
_STAGES, _NUM_STAGES, _COUNTERS, _STEP, _READ, _WRITE, _BYTE = range(7)


def float_operand(value: float) -> int:
    """A float as an operand: the bits of its float64."""
    return int(struct.unpack("<q", struct.pack("<d", value))[0])


@dataclass(frozen=True, slots=True)
class Stage:
    """One operation of a program.

    ``operands`` maps the operation's operand numbers to int64 values; the others are 0.
    ``wait``: threads meet after it; False only if no stage before the next meeting reads or
    overwrites what it writes.
    """

    op: Op
    operands: dict[int, int]
    wait: bool = True


class Program:
    """Stages as an int64 table. Whoever makes it keeps the memory alive that it points to."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self.table: Int64Array = np.zeros((len(stages), STAGE_WORDS), np.int64)
        for record, stage in zip(self.table, stages, strict=True):
            record[_ADDRESS], record[_BARRIER] = stage.op.address, stage.wait
            for operand, value in stage.operands.items():
                if not _FIRST_OPERAND <= operand < STAGE_WORDS:
                    raise ValueError(f"{stage.op.name} has no operand {operand}")
                record[operand] = value
        self._names = [stage.op.name for stage in stages]
        self.counters: Int64Array = np.zeros((len(stages), _COUNTER_BYTES // 8), np.int64)

    @property
    def num_stages(self) -> int:
        return len(self.table)

    def stage_names(self) -> list[str]:
        """The operations' names, in order; for profiles."""
        return list(self._names)


@jit("void(int64, int64, int64, int64, int64, int64)")
def execute(stages, first, end, counters, step, thread):  # type: ignore[no-untyped-def]
    """Works through stages ``first:end`` of a program as one of its threads."""
    num_threads = load_i64(step, words.NUM_THREADS)
    gate = load_i64(step, words.BARRIER)
    for index in range(first, end):
        stage = stages + index * STAGE_WORDS * 8
        counter = counters + index * _COUNTER_BYTES
        call_op(load_i64(stage, _ADDRESS), stage, step, counter, thread)
        if num_threads > 1 and load_i64(stage, _BARRIER) != 0:
            barrier(gate, num_threads)


@jit("void(int64, int64)")
def _serve(control, thread):  # type: ignore[no-untyped-def]
    """A worker's life: a step for each byte that comes, until the pipe is closed."""
    while True:
        got = read_byte(load_i64(control, _READ), control + 8 * _BYTE + thread)
        if got == 0:
            break
        if got == 1:
            execute(
                load_i64(control, _STAGES),
                0,
                load_i64(control, _NUM_STAGES),
                load_i64(control, _COUNTERS),
                load_i64(control, _STEP),
                thread,
            )


@jit("void(int64, int64)")
def _lead(control, num_threads):  # type: ignore[no-untyped-def]
    """Wakes the workers and works through the program as thread 0."""
    for _ in range(num_threads - 1):
        write_byte(load_i64(control, _WRITE), control + 8 * _BYTE)
    execute(
        load_i64(control, _STAGES),
        0,
        load_i64(control, _NUM_STAGES),
        load_i64(control, _COUNTERS),
        load_i64(control, _STEP),
        0,
    )


class Team:
    """``num_threads`` threads that run programs together; the caller is one of them.

    One program at a time: calls of ``run`` must not overlap. The last stage must wait, so that no
    worker is still busy when ``run`` returns.
    """

    def __init__(self, num_threads: int) -> None:
        if num_threads < 1:
            raise ValueError(f"a team of {num_threads} threads can't work")
        self.num_threads = num_threads
        self._control: Int64Array = np.zeros(_BYTE + 1 + num_threads, np.int64)
        padded = np.zeros(3 * _CACHE_LINE // 8, np.int64)
        skip = -padded.ctypes.data % _CACHE_LINE // 8
        self._barrier: Int64Array = padded[skip : skip + 2 * _CACHE_LINE // 8]
        self._closed = False
        self._workers: list[threading.Thread] = []
        read, self._write = os.pipe()
        self._control[_READ], self._control[_WRITE] = read, self._write
        for thread in range(1, num_threads):
            worker = threading.Thread(
                target=_serve,
                args=(self._control.ctypes.data, thread),
                name=f"ramet-cpu-{thread}",
                daemon=True,
            )
            worker.start()
            self._workers.append(worker)

    def run(self, program: Program, step: Int64Array) -> None:
        """Runs a program for a step's record (see ``step``); fills its thread count and barrier."""
        if self._closed:
            raise RuntimeError("the team is closed")
        step[words.NUM_THREADS] = self.num_threads
        step[words.BARRIER] = self._barrier.ctypes.data
        program.counters[:] = 0
        control = self._control
        control[_STAGES] = program.table.ctypes.data
        control[_NUM_STAGES] = program.num_stages
        control[_COUNTERS] = program.counters.ctypes.data
        control[_STEP] = step.ctypes.data
        _lead(control.ctypes.data, self.num_threads)

    def close(self) -> None:
        """Ends the threads; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        os.close(self._write)
        for worker in self._workers:
            worker.join()
        os.close(int(self._control[_READ]))

"""A forward pass as data: a list of stages that every thread of a team works through.

A ``Stage`` names an operation and its operands (addresses and sizes). Stages whose results the
next ones don't read form a phase; a new architecture is a function that emits stages, and only a
new operation needs new compiled code.

A phase ends when its work is done, not when all threads have come: tasks go to whichever thread
asks first, and the last thread to leave a phase opens the next. So a thread that the operating
system holds back delays the others by no more than the task it is in and one that it may have
taken ahead, and one thread alone gets through everything. Which thread does a task never changes
the task's arithmetic.

A ``Team`` keeps its threads between steps. They sleep in a system call, outside the interpreter,
so a step starts without the interpreter lock and an idle team uses no core.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ramet.jit import jit
from ramet.kernels.cpu_support import step as words
from ramet.kernels.cpu_support.compiled_op import Op
from ramet.kernels.cpu_support.memory import (
    HAS_FUTEX,
    add_in_order,
    call_op,
    exchange_if,
    load_acquire,
    load_i64,
    pause,
    read_byte,
    sleep_while,
    store_release,
    wake_all,
    write_byte,
)

Int64Array = npt.NDArray[np.int64]

STAGE_WORDS = 48
_ADDRESS, _RECORD = 0, 1
_FIRST_OPERAND = 2
_COUNTER_BYTES = 64
_CACHE_LINE = 64

# Words of a team's control record.
_GATE, _STAGES, _PHASES, _NUM_PHASES, _COUNTERS, _STEP, _READ, _WRITE = range(8)
_TIMEOUT, _BYTE = 8, 10

# Words from the gate on, alone in their cache line: the gate; how many threads sleep before it; how
# many steps there have been.
_SLEEPERS, _CALLS = 1, 2
_CLOSED = -1

# The gate: the open phase in the high bits, the number of threads inside in the low ones.
_PHASE_BITS = 16
_INSIDE = (1 << _PHASE_BITS) - 1
_IDLE = -1
_SPINS_BEFORE_SLEEP = 2000
_SLEEP_NS = 1_000_000


def float_operand(value: float) -> int:
    """A float as an operand: the bits of its float64."""
    return int(struct.unpack("<q", struct.pack("<d", value))[0])


@dataclass(frozen=True, slots=True)
class Stage:
    """One operation of a program.

    ``operands`` maps the operation's operand numbers to int64 values; the others are 0.
    ``record``: which of the step's records it works on.
    ``wait``: its phase ends with it; False only if no later stage of the phase reads or overwrites
    what it writes.
    """

    op: Op
    operands: dict[int, int]
    wait: bool = True
    record: int = words.ALL


class Program:
    """Stages as an int64 table. Its owner keeps the memory alive that it points to."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self.table: Int64Array = np.zeros((len(stages), STAGE_WORDS), np.int64)
        for record, stage in zip(self.table, stages, strict=True):
            record[_ADDRESS] = stage.op.address
            record[_RECORD] = 8 * words.SIZE * stage.record
            for operand, value in stage.operands.items():
                if not _FIRST_OPERAND <= operand < STAGE_WORDS:
                    raise ValueError(f"{stage.op.name} has no operand {operand}")
                record[operand] = value
        self._names = [stage.op.name for stage in stages]
        self.counters: Int64Array = np.zeros((len(stages), _COUNTER_BYTES // 8), np.int64)
        ends = [index + 1 for index, stage in enumerate(stages) if stage.wait]
        if not ends or ends[-1] != len(stages):
            raise ValueError("the last stage must wait")
        self.phases: Int64Array = np.array([0, *ends], np.int64)

    @property
    def num_stages(self) -> int:
        return len(self.table)

    def stage_names(self) -> list[str]:
        """The operations' names, in order; for profiles."""
        return list(self._names)


@jit("void(int64, int64, int64)")
def _leave(gate, phase, num_phases):  # type: ignore[no-untyped-def]
    """Steps out of a phase; the last thread inside opens the next, or ends the program."""
    while True:
        state = load_acquire(gate)
        after = state - 1
        last = state & _INSIDE == 1
        if last:
            after = _IDLE if phase + 1 == num_phases else (phase + 1) << _PHASE_BITS
        if exchange_if(gate, state, after):
            break
    if last and load_acquire(gate + 8 * _SLEEPERS) != 0:
        wake_all(gate)


@jit("void(int64, int64)")
def _work(control, thread):  # type: ignore[no-untyped-def]
    """Works on whatever phase is open until the program is done, as one of its threads.

    A thread may come late, even after its step: only once it is inside a phase, which keeps the
    phase open, does it read what the phase is about.
    """
    gate = load_i64(control, _GATE)
    left = -1
    spins = 0
    while True:
        state = load_acquire(gate)
        if state == _IDLE:
            break
        phase = state >> _PHASE_BITS
        if phase == left:
            spins += 1
            if spins < _SPINS_BEFORE_SLEEP:
                pause()
            else:  # a thread that works in the phase may wait for a core: it can have this one
                add_in_order(gate + 8 * _SLEEPERS, 1)
                sleep_while(gate, state, control + 8 * _TIMEOUT)
                add_in_order(gate + 8 * _SLEEPERS, -1)
            continue
        if not exchange_if(gate, state, state + 1):
            continue
        phases = load_i64(control, _PHASES)
        for index in range(load_i64(phases, phase), load_i64(phases, phase + 1)):
            stage = load_i64(control, _STAGES) + index * STAGE_WORDS * 8
            counter = load_i64(control, _COUNTERS) + index * _COUNTER_BYTES
            step = load_i64(control, _STEP) + load_i64(stage, _RECORD)
            call_op(load_i64(stage, _ADDRESS), stage, step, counter, thread)
        _leave(gate, phase, load_i64(control, _NUM_PHASES))
        left = phase
        spins = 0


@jit("void(int64, int64)")
def _serve(control, thread):  # type: ignore[no-untyped-def]
    """A worker's life: a look at the gate for each call, until the team is closed."""
    calls = load_i64(control, _GATE) + 8 * _CALLS
    seen = 0
    while True:
        call = load_acquire(calls)
        if call == _CLOSED:
            break
        if call != seen:
            seen = call
            _work(control, thread)
        elif HAS_FUTEX:
            sleep_while(calls, seen, 0)
        else:
            read_byte(load_i64(control, _READ), control + 8 * _BYTE + thread)


@jit("void(int64, int64)")
def _call(control, num_workers):  # type: ignore[no-untyped-def]
    """Wakes the workers: by futex where there is one, since the system may start its waiters on
    other cores; it starts a pipe's reader on the writer's."""
    if HAS_FUTEX:
        wake_all(load_i64(control, _GATE) + 8 * _CALLS)
    else:
        for _ in range(num_workers):
            write_byte(load_i64(control, _WRITE), control + 8 * _BYTE)


@jit("void(int64, int64)")
def _open(control, num_threads):  # type: ignore[no-untyped-def]
    """Opens the first phase and calls the workers."""
    store_release(load_i64(control, _GATE), 0)
    if num_threads > 1:
        add_in_order(load_i64(control, _GATE) + 8 * _CALLS, 1)
        _call(control, num_threads - 1)


class Team:
    """``num_threads`` threads that run programs together; the caller is one of them.

    One program at a time: calls of ``run`` must not overlap.
    """

    def __init__(self, num_threads: int) -> None:
        if num_threads < 1:
            raise ValueError(f"a team of {num_threads} threads can't work")
        self.num_threads = num_threads
        self._control: Int64Array = np.zeros(_BYTE + 1 + num_threads, np.int64)
        padded = np.full(2 * _CACHE_LINE // 8, _IDLE, np.int64)
        skip = -padded.ctypes.data % _CACHE_LINE // 8
        self._gate: Int64Array = padded[skip : skip + 3]
        self._gate[_SLEEPERS] = self._gate[_CALLS] = 0
        self._control[_GATE] = self._gate.ctypes.data
        self._control[_TIMEOUT : _TIMEOUT + 2] = 0, _SLEEP_NS
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

    def run(
        self, program: Program, step: Int64Array, overlap: Callable[[], None] | None = None
    ) -> None:
        """Runs a program for a step's records [NUM_RECORDS, SIZE] (see ``step``); fills in the
        thread count.

        ``overlap`` is done by the caller while the workers are at it, before it joins them.
        """
        if self._closed:
            raise RuntimeError("the team is closed")
        step[..., words.NUM_THREADS] = self.num_threads
        program.counters[:] = 0
        control = self._control
        control[_STAGES] = program.table.ctypes.data
        control[_PHASES] = program.phases.ctypes.data
        control[_NUM_PHASES] = len(program.phases) - 1
        control[_COUNTERS] = program.counters.ctypes.data
        control[_STEP] = step.ctypes.data
        _open(control.ctypes.data, self.num_threads)
        try:
            if overlap is not None:
                overlap()
        finally:
            _work(control.ctypes.data, 0)

    def close(self) -> None:
        """Ends the threads; a second call does nothing."""
        if self._closed:
            return
        self._closed = True
        self._gate[_CALLS] = _CLOSED
        _call(self._control.ctypes.data, len(self._workers))
        os.close(self._write)
        for worker in self._workers:
            worker.join()
        os.close(int(self._control[_READ]))

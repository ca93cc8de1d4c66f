"""Faults of processes, disks and clocks, one at a time, with pauses between them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import resource
import signal
import time
from collections import Counter

from clock import set_clock
from server import Victim

_UNLIMITED = resource.RLIM_INFINITY


class Faults:
    """Plays faults until it is cancelled; then everything continues as without.

    Attributes:
        counts: how often each was played.
    """

    def __init__(self, victim: Victim, rng: random.Random, *, pause_s: float) -> None:
        self._victim = victim
        self._rng = rng
        self._pause_s = pause_s
        self.counts: Counter[str] = Counter()
        self.with_kills = True

    async def run(self) -> None:
        """Never returns."""
        mild = [self.jump_clock, self.fill_disk, self.reload, self.stop_briefly]
        while True:
            await asyncio.sleep(self._rng.uniform(0.3, 1.0) * self._pause_s)
            await self._victim.ready.wait()
            hard = [self.kill_engine, self.kill_restarting, self.kill_server, self.stop_engine]
            fault = self._rng.choice([*mild, *hard] if self.with_kills else mild)
            self.counts[fault.__name__] += 1
            await fault()

    async def kill_engine(self) -> None:
        """The engine's process is gone."""
        self._signal(self._victim.engine_pid(), signal.SIGKILL)

    async def kill_restarting(self) -> None:
        """The engine's process is gone, and so are those that replace it, while they start."""
        for _ in range(self._rng.randint(2, 4)):
            self._signal(self._victim.engine_pid(), signal.SIGKILL)
            await asyncio.sleep(self._rng.uniform(0.1, 1.5))

    async def kill_server(self) -> None:
        """The server's process is gone, and its engine ends with it."""
        if self._victim.process is not None:
            self._signal(self._victim.process.pid, signal.SIGKILL)

    async def stop_engine(self) -> None:
        """The engine hangs for longer than it may."""
        await self._stop(self._victim.engine_pid(), 9.0)

    async def stop_briefly(self) -> None:
        """One of the processes is not scheduled for a while."""
        if pids := self._victim.pids():
            await self._stop(self._rng.choice(pids), self._rng.uniform(0.1, 3.0))

    async def fill_disk(self) -> None:
        """No process can make a file longer."""
        limited = self._victim.pids()
        for pid in limited:
            with contextlib.suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, _UNLIMITED))
        try:
            await asyncio.sleep(self._rng.uniform(1.0, 5.0))
        finally:
            for pid in limited:
                with contextlib.suppress(ProcessLookupError):
                    resource.prlimit(pid, resource.RLIMIT_FSIZE, (_UNLIMITED, _UNLIMITED))

    async def jump_clock(self) -> None:
        """The wall clock is set forward or back, by up to ten years."""
        set_clock(self._victim.clock, self._rng.choice([-1, 1]) * 10 ** self._rng.uniform(0, 8.5))

    async def reload(self) -> None:
        """The keys are read again."""
        if self._victim.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._victim.process.pid, signal.SIGHUP)

    async def _stop(self, pid: int | None, seconds: float) -> None:
        self._signal(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            self._signal(pid, signal.SIGCONT)

    def _signal(self, pid: int | None, number: signal.Signals) -> None:
        if pid is None:
            return
        if number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT):
            self._victim.disturbances.append(time.monotonic())
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

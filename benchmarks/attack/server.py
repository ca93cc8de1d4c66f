"""The victim's process: started, started again when it has been killed, watched, ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from clock import set_clock

TENANTS: tuple[str, ...] = ("a", "b", "c")
"""The tenant whose keys the attack uses; checks use another tenant's."""

_START_S = 300.0
_EXPECTED = ("the engine's process has died", "the engine has made no progress", "a step has run")
"""Beginnings of errors that faults cause in the log."""


class Victim:
    """A server that runs again soon after it has been killed.

    Attributes:
        url: its address.
        disturbances: when the server or its engine was killed, stopped or started, by
            ``time.monotonic``.
        ready: is set while the process that runs has finished its start. A start that is
            disturbed may fail, so faults wait for it.
        complaints: errors and anything but records in its log.
    """

    def __init__(self, folder: Path, model: str) -> None:
        self._folder = folder
        self._model = model
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port: int = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self.disturbances: list[float] = []
        self.complaints: deque[str] = deque(maxlen=50)
        self.ready = asyncio.Event()
        self.num_starts = 0
        self.process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._ending = False
        tenants: list[dict[str, Any]] = [{"name": each, "keys": [f"sk-{each}"]} for each in TENANTS]
        tenants.append({"name": "ops", "keys": ["sk-ops"], "admin": True})
        self.write_keys(tenants)
        set_clock(self.clock, 0.0)

    @property
    def clock(self) -> Path:
        return self._folder / "clock"

    def write_keys(self, tenants: list[dict[str, Any]]) -> None:
        """Replaces the file of keys."""
        path = self._folder / "keys.json"
        path.write_text(json.dumps({"tenants": tenants}))
        path.chmod(0o600)

    async def start(self) -> None:
        """Starts it, and waits until it serves."""
        self.num_starts += 1
        script = Path(__file__).with_name("victim.py")
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, str(script), str(self._folder), str(self._port), self._model,
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE, limit=1 << 22,
        )  # fmt: skip
        self._reader = asyncio.create_task(self._read(self.process))
        deadline = time.monotonic() + _START_S
        async with httpx.AsyncClient(base_url=self.url, verify=False) as client:
            while time.monotonic() < deadline and self.process.returncode is None:
                with contextlib.suppress(httpx.HTTPError):
                    if (await client.get("/ready")).status_code == 200:
                        self.disturbances.append(time.monotonic())
                        self.ready.set()
                        return
                await asyncio.sleep(0.1)
        if not self._ending and self.process.returncode != -signal.SIGKILL:
            raise AssertionError(f"the server doesn't start: {list(self.complaints)}")

    async def serves(self) -> None:
        """Waits until the server and its engine have finished their starts."""
        async with httpx.AsyncClient(base_url=self.url, verify=False) as client:
            while True:
                await self.ready.wait()
                with contextlib.suppress(httpx.HTTPError):
                    if (await client.get("/ready")).status_code == 200:
                        return
                await asyncio.sleep(0.1)

    async def keep_running(self) -> None:
        """Starts it again whenever it has been killed."""
        while not self._ending:
            assert self.process is not None
            code = await self.process.wait()
            self.ready.clear()
            if self._ending:
                return
            if code != -signal.SIGKILL:
                self.complaints.append(f"the server ended by itself with {code}")
            await self.start()

    async def end(self) -> int:
        """Ends it gracefully; its exit code."""
        self._ending = True
        assert self.process is not None
        assert self._reader is not None
        self.process.terminate()
        code = await asyncio.wait_for(self.process.wait(), 60)
        await self._reader
        return code

    async def check(self) -> dict[str, Any]:
        """Checks its invariants; what is still running."""
        key = {"authorization": "Bearer sk-ops"}
        async with httpx.AsyncClient(base_url=self.url, verify=False, timeout=90) as client:
            answer = await client.get("/attack/check", headers=key)
        if answer.status_code != 200:
            raise AssertionError(f"check() fails: {answer.text}")
        found: dict[str, Any] = answer.json()
        return found

    def pids(self) -> list[int]:
        """The server's process and its children."""
        if self.process is None or self.process.returncode is not None:
            return []
        return [self.process.pid, *_children(self.process.pid)]

    def engine_pid(self) -> int | None:
        """The largest child: the others compile, or track resources."""
        children = self.pids()[1:]
        return max(children, key=resident_bytes) if children else None

    def memory(self) -> int:
        """Resident bytes of all its processes."""
        return sum(map(resident_bytes, self.pids()))

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        async for raw in process.stderr:
            line = raw.decode("utf-8", "replace").rstrip()
            try:
                record = json.loads(line)
            except ValueError:
                self.complaints.append(line)
                continue
            is_error = record["level"] in ("error", "critical")
            if is_error and not record["message"].startswith(_EXPECTED):
                self.complaints.append(line)


def resident_bytes(pid: int) -> int:
    """Resident memory of a process; 0 if it has ended."""
    try:
        text = Path(f"/proc/{pid}/statm").read_text()
    except OSError:
        return 0
    return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _children(pid: int) -> Iterator[int]:
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            yield from map(int, tasks.read_text().split())

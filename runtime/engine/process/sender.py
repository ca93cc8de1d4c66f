"""Sends commands to the engine's process from a thread, so that no caller waits for the pipe."""

from __future__ import annotations

import threading
from collections import deque
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler

from ramet.runtime.engine.process.messages import Command

_MAX_BYTES = 64 << 20
"""Most bytes of commands that wait to be sent."""


class CommandSender:
    """A bounded queue of commands and the thread that writes them to a pipe."""

    def __init__(self, connection: Connection, max_bytes: int = _MAX_BYTES) -> None:
        self._connection = connection
        self._max_bytes = max_bytes
        self._changed = threading.Condition()
        self._waiting: deque[memoryview] = deque()
        self._num_bytes = 0
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="ramet-engine-sender", daemon=True)
        self._thread.start()

    def send(self, command: Command, *, bounded: bool = True) -> bool:
        """Queues a command without waiting; False if the queue is full.

        Commands that release something pass ``bounded=False``: they are small, and one exists for
        each request at most.
        """
        message = ForkingPickler.dumps(command)
        with self._changed:
            size = len(message)
            if bounded and self._num_bytes and self._num_bytes + size > self._max_bytes:
                return False
            self._waiting.append(message)
            self._num_bytes += size
            self._changed.notify()
        return True

    def stop(self) -> None:
        """Ends the thread; what waits is dropped. A blocked write ends with the other process."""
        with self._changed:
            self._stopped = True
            self._waiting.clear()
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._stopped:
                    self._changed.wait()
                if self._stopped:
                    return
                message = self._waiting.popleft()
            try:
                self._connection.send_bytes(message)
            except OSError:  # the process has died; the supervisor ends its requests
                return
            with self._changed:
                self._num_bytes -= len(message)

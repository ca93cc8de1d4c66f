"""Closes the connection of a client that takes nothing of its answer."""

from __future__ import annotations

import asyncio
import logging

logger = logging.getLogger("ramet.server")


class SendWatch:
    """Aborts a connection whose full send buffer hasn't shrunk for ``timeout_s``."""

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, timeout_s: float
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._timeout_s = timeout_s
        self._timer: asyncio.TimerHandle | None = None
        self._num_unsent = 0

    def start(self) -> None:
        """The send buffer is full: from now on the client must take something in time."""
        self._num_unsent = self._transport.get_write_buffer_size()
        if self._timer is None:
            self._timer = self._loop.call_later(self._timeout_s, self._check)

    def stop(self) -> None:
        """The send buffer has space again, or the connection is closed."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        self._timer = None
        if self._transport.get_write_buffer_size() < self._num_unsent:
            self.start()
            return
        logger.warning(
            "slow_reader: closed the connection of a client that took nothing of its answer for "
            "%g s (--send-timeout)",
            self._timeout_s,
        )
        self._transport.abort()

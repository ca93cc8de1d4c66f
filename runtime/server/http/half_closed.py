"""Finds out whether a client that has stopped sending still reads."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable

_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 5.0
_RESET_S = 0.05
_INTERIM_RESPONSE = b"HTTP/1.1 100 Continue\r\n\r\n"


class HalfClosedProbe:
    """Aborts a connection whose sending side is closed once its client has stopped reading.

    A client that closes its connection and one that closes only its sending side send the same
    segment. They differ in what they answer to data: the former resets the connection. So until the
    response begins, interim responses are written, which HTTP/1.1 clients skip (RFC 9110, section
    15.2), in growing intervals, and the connection is polled for a reset soon after each. The first
    comes after half a second, so that quick responses come alone.

    Args:
        is_silent: whether no part of the awaited response has been sent.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        is_silent: Callable[[], bool],
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._is_silent = is_silent
        self._poll = select.poll()
        self._poll.register(transport.get_extra_info("socket").fileno(), 0)  # errors, hang-ups
        self._pause_s = _FIRST_PAUSE_S
        self._timer = loop.call_later(self._pause_s, self._probe)

    def stop(self) -> None:
        """Ends probing."""
        self._timer.cancel()

    def _probe(self) -> None:
        if self._is_silent():
            self._transport.write(_INTERIM_RESPONSE)
        self._timer = self._loop.call_later(_RESET_S, self._check)

    def _check(self) -> None:
        if self._poll.poll(0):
            self._transport.abort()
        elif not self._transport.is_closing():
            self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
            self._timer = self._loop.call_later(self._pause_s, self._probe)

"""Tracks running calls and drains them on shutdown."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from ramet.runtime.api.errors import InvalidRequestError, RametError, ShuttingDownError

_ABORT_TIMEOUT_S = 5.0
"""Time for aborted calls to send their errors."""

Abort = Callable[[RametError | None], None]
"""Ends a call early with an error for its client; None: the client requested it."""


class Lifecycle:
    """The running calls; once draining, no new ones are admitted.

    States go one way: serving, draining (``/ready`` is false), ended.
    """

    def __init__(self) -> None:
        self._aborts: dict[str, Abort] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self.draining = False

    @property
    def num_calls(self) -> int:
        return len(self._aborts)

    def add_call(self, call_id: str, abort: Abort) -> None:
        """Adds a call; pair it with ``remove_call``.

        Raises:
            ShuttingDownError: the server is draining.
            InvalidRequestError: a call with this id is running.
        """
        if self.draining:
            raise ShuttingDownError("the server is shutting down; try another replica")
        if call_id in self._aborts:
            raise InvalidRequestError(
                "a request with this id is already running", param="request_id"
            )
        self._aborts[call_id] = abort
        self._idle.clear()

    def remove_call(self, call_id: str) -> None:
        """Removes a call that has ended."""
        self._aborts.pop(call_id, None)
        if not self._aborts:
            self._idle.set()

    def abort(self, call_id: str) -> bool:
        """Aborts a running call; returns whether there is one with this id."""
        abort = self._aborts.get(call_id)
        if abort is None:
            return False
        abort(None)
        return True

    async def drain(self, grace_s: float) -> None:
        """Stops admitting, waits ``grace_s`` seconds for running calls, then aborts the rest."""
        self.draining = True
        try:
            await asyncio.wait_for(self._idle.wait(), grace_s)
        except TimeoutError:
            self.abort_all()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), _ABORT_TIMEOUT_S)

    def abort_all(self) -> None:
        """Aborts every running call with an error for its client."""
        for abort in list(self._aborts.values()):
            abort(ShuttingDownError("the server shut down before the response was complete"))

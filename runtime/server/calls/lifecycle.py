"""Whether the server takes new work, how much it has, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from ramet.runtime.api.errors import EngineDeadError, InvalidRequestError, RametError

_LAST_WORDS_S = 5.0
"""How long aborted calls get to tell their clients so."""

Abort = Callable[[RametError | None], None]
"""Ends a call early, for a reason that its client is told; None: it was asked to."""


class ShuttingDownError(EngineDeadError):
    """The server is ending and takes no new requests."""

    default_code = "shutting_down"


class Lifecycle:
    """Counts the calls in progress; once draining, admits no more.

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

    def enter(self, call_id: str, abort: Abort) -> None:
        """Notes a call that has begun; it must ``leave``.

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

    def leave(self, call_id: str) -> None:
        """Notes that a call has ended."""
        self._aborts.pop(call_id, None)
        if not self._aborts:
            self._idle.set()

    def abort(self, call_id: str) -> bool:
        """Aborts a running call; False: there is none of this id."""
        abort = self._aborts.get(call_id)
        if abort is None:
            return False
        abort(None)
        return True

    async def drain(self, grace_s: float) -> None:
        """Admits no more, lets running calls finish for ``grace_s`` seconds, aborts the rest."""
        self.draining = True
        try:
            await asyncio.wait_for(self._idle.wait(), grace_s)
        except TimeoutError:
            self.abort_all()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), _LAST_WORDS_S)

    def abort_all(self) -> None:
        """Aborts every running call; each tells its client so."""
        for abort in list(self._aborts.values()):
            abort(ShuttingDownError("the server has shut down before the answer was complete"))

"""One connection: what its client may send before, behind and instead of a body."""

from __future__ import annotations

import asyncio
from collections import deque

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

_MAX_HEAD_BYTES = 64 * 1024
"""Bytes that may come without being anybody's body: a head, a chunk's extensions, trailers."""


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's protocol, and what that leaves open.

    When the client leaves, every request that isn't answered is told. uvicorn tells the one that
    came last, but the one that runs is the first (RFC 9112, section 9.3.2).

    A head has an end: uvicorn would keep as much of one as anybody sends.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._unanswered: deque[RequestResponseCycle] = deque()
        self._head_bytes = 0
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > _MAX_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("The head of the request is too large.")

    def on_headers_complete(self) -> None:
        self._head_bytes = 0
        super().on_headers_complete()
        unanswered = self._unanswered
        while unanswered and unanswered[0].response_complete:
            unanswered.popleft()
        if self.cycle is not None:  # there is none where the client asks for another protocol
            unanswered.append(self.cycle)

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._head_bytes = 0
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        for cycle in self._unanswered:
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        self._unanswered.clear()
        super().connection_lost(exc)

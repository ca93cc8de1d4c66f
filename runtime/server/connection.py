"""A connection whose client may send requests behind one that has not been answered yet."""

from __future__ import annotations

import asyncio
from collections import deque

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's protocol, which alone tells only the request that came last that its client has
    left. Here every request that isn't answered is told; those before the last are the ones that
    run (RFC 9112, section 9.3.2, has them answered in order).
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._unanswered: deque[RequestResponseCycle] = deque()
        super().connection_made(transport)

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        unanswered = self._unanswered
        while unanswered and unanswered[0].response_complete:
            unanswered.popleft()
        if self.cycle is not None:  # there is none where the client asks for another protocol
            unanswered.append(self.cycle)

    def connection_lost(self, exc: Exception | None) -> None:
        for cycle in self._unanswered:
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        self._unanswered.clear()
        super().connection_lost(exc)

"""HTTP/1.1 connections: limits on heads and on receive times, ignored upgrade offers."""

from __future__ import annotations

import asyncio
import enum
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from httptools import HttpParserInvalidMethodError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from ramet.runtime.api.errors import RequestTimeoutError
from ramet.runtime.server.http.error_response import error_body
from ramet.runtime.server.http.half_closed import HalfClosedProbe
from ramet.runtime.server.http.json_response import json_bytes
from ramet.runtime.server.http.send_watch import SendWatch

HAS_GONE = "ramet.has_gone"
"""A request's scope has a function here that says whether its client has disconnected."""

_MAX_HEAD_BYTES = 64 * 1024
"""Most consecutive bytes outside a body: a head, chunk extensions, trailers."""


class _Awaited(enum.Enum):
    """What the client should send next."""

    NOTHING = enum.auto()
    REQUEST = enum.auto()
    HEAD = enum.auto()
    BODY = enum.auto()


def _has_gone(request: weakref.ref[RequestResponseCycle]) -> Callable[[], bool]:
    """Makes a function for the request's own scope, without a cycle of references."""

    def has_gone() -> bool:
        cycle = request()
        return cycle is None or cycle.disconnected

    return has_gone


class _Parser(HttpRequestParser):
    """An HTTP/1.1 parser that ignores ``Upgrade`` offers (RFC 9110, section 7.8).

    httptools treats everything after a head with such an offer as the other protocol, so the body
    of a client that offers HTTP/2 would be lost. The head is parsed again without the offer.
    """

    def __init__(self, protocol: HttpProtocol) -> None:
        super().__init__(protocol)
        self.set_dangerous_leniencies(lenient_data_after_close=True)  # as in uvicorn
        self._protocol = protocol

    def feed_data(self, data: bytes) -> None:  # type: ignore[override]  # uvicorn has bytes
        while True:
            try:
                super().feed_data(data)
            except HttpParserUpgrade as end:
                if self.get_method() == b"CONNECT":
                    raise HttpParserInvalidMethodError("this server is not a proxy") from None
                data = self._protocol.head_without_offer() + data[end.args[0] :]
            else:
                return


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits on what a client may send, and complete disconnect notices.

    On a disconnect every unanswered request is notified; uvicorn notifies the last one only, though
    pipelined requests are answered in order (RFC 9112, section 9.3.2). A client that closes only
    its sending side gets its responses first; not over TLS, which has no such state here, and not
    in HTTP/1.0, which has no interim responses to probe with.

    The size of a head is limited. So is the time to receive a request: ``receive_timeout_s`` from
    the connection, or the request's first bytes, to its last. Then a request that has begun is
    answered with 408 (RFC 9110, section 15.5.9), and the connection closes. The limit doesn't
    apply while a connection is idle between requests or is being answered; blank lines end the
    idle state.
    """

    def __init__(
        self, *args: Any, receive_timeout_s: float, send_timeout_s: float, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.parser = _Parser(self)
        self._receive_timeout_s = receive_timeout_s
        self._send_timeout_s = send_timeout_s
        self._unanswered: deque[RequestResponseCycle] = deque()
        self._head_bytes = 0
        self._awaited = _Awaited.REQUEST
        self._timer: asyncio.TimerHandle | None = None
        self._half_closed: HalfClosedProbe | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._send_watch = SendWatch(transport, self.loop, self._send_timeout_s)
        self._watch()

    def data_received(self, data: bytes) -> None:
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > _MAX_HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("The head of the request is too large.")
        if self._awaited is _Awaited.NOTHING and (not self.cycle or self.cycle.response_complete):
            self._awaited = _Awaited.REQUEST  # uvicorn has stopped its keep-alive timer
        self._watch()

    def on_message_begin(self) -> None:
        self._awaited = _Awaited.HEAD
        super().on_message_begin()

    def head_without_offer(self) -> bytes:
        """The parsed head without its ``Upgrade`` offer."""
        version = self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version)]
        lines += [b"%b: %b" % (name, value) for name, value in self.headers if name != b"upgrade"]
        return b"\r\n".join(lines) + b"\r\n\r\n"

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            return  # it is parsed again
        self._head_bytes = 0
        self._awaited = _Awaited.BODY
        super().on_headers_complete()
        self._first_unanswered()  # forgets answered ones
        self._unanswered.append(self.cycle)
        scope: dict[str, Any] = self.cycle.scope  # type: ignore[assignment]  # may be extended
        scope[HAS_GONE] = _has_gone(weakref.ref(self.cycle))

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self._head_bytes = 0
        self._awaited = _Awaited.NOTHING
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._stop_watching()
        self._watch()  # starts the timer of a pipelined request

    def eof_received(self) -> bool:  # type: ignore[override]  # uvicorn closes always
        """Keeps the connection open for the responses to complete requests."""
        if self._half_closed is not None:
            return True
        is_whole = self._awaited is _Awaited.NOTHING and self._first_unanswered() is not None
        if not is_whole or self.scheme == "https" or self.scope["http_version"] == "1.0":
            return False
        self.cycle.keep_alive = False
        self._half_closed = HalfClosedProbe(self.transport, self.loop, self._is_silent)
        return True

    def _first_unanswered(self) -> RequestResponseCycle | None:
        unanswered = self._unanswered
        while unanswered and unanswered[0].response_complete:
            unanswered.popleft()
        return unanswered[0] if unanswered else None

    def _is_silent(self) -> bool:
        first = self._first_unanswered()
        return first is not None and not first.response_started

    def pause_writing(self) -> None:
        super().pause_writing()
        self._send_watch.start()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._send_watch.stop()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watching()
        self._send_watch.stop()
        if self._half_closed is not None:
            self._half_closed.stop()
        for cycle in self._unanswered:
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        self._unanswered.clear()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Runs the timer exactly while bytes of a request are awaited."""
        if self._awaited is _Awaited.NOTHING:
            self._stop_watching()
        elif self._timer is None and not self.transport.is_closing():
            self._timer = self.loop.call_later(self._receive_timeout_s, self._end_wait)

    def _stop_watching(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end_wait(self) -> None:
        self._timer = None
        arriving = self.cycle if self._awaited is _Awaited.BODY else None
        others = (cycle for cycle in self._unanswered if cycle is not arriving)
        if not all(cycle.response_complete for cycle in others):
            self._watch()  # pipelined bytes aren't read while earlier requests are answered
            return
        is_answered = arriving is not None and arriving.response_started
        if self._awaited is not _Awaited.REQUEST and not is_answered:
            self.transport.write(self._timeout_answer())
        self.transport.close()

    def _timeout_answer(self) -> bytes:
        error = RequestTimeoutError(
            f"the request was not received completely within {self._receive_timeout_s:g} s"
        )
        body = json_bytes(error_body(error, self.scope.get("path", "")))
        head = (
            f"HTTP/1.1 {error.status} Request Timeout\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        return head.encode() + body

"""Runs the server until a signal ends it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import FrameType
from typing import cast

import uvicorn

from ramet.runtime.api.log import TextFormatter
from ramet.runtime.engine.api import EngineApi
from ramet.runtime.engine.monitoring.idle_collector import IdleCollector
from ramet.runtime.server.access import Access
from ramet.runtime.server.allocator import return_large_blocks
from ramet.runtime.server.app import create_app
from ramet.runtime.server.calls.lifecycle import Lifecycle
from ramet.runtime.server.config import ServerConfig
from ramet.runtime.server.extension import Extension
from ramet.runtime.server.http.connection import HttpProtocol
from ramet.runtime.server.http.listen import bind
from ramet.runtime.server.observability.tracing import open_tracing

_SWITCH_INTERVAL_S = 0.0005
"""Longest time that a worker thread may hold the interpreter while the event loop waits."""

_LONG_IDLE_TICKS = 10

logger = logging.getLogger("ramet.server")


class HttpServer(uvicorn.Server):
    """uvicorn with a graceful shutdown.

    On the first SIGTERM or SIGINT ``/ready`` fails and new requests are refused; running ones get
    the grace period, then a clean error; the listening socket closes last. The process exits with
    code 0. A second signal ends the grace period immediately. SIGHUP reads files of keys and of
    the certificate again; without such files it is like SIGTERM.
    """

    def __init__(
        self,
        engine: EngineApi,
        config: ServerConfig,
        *,
        extensions: Sequence[Extension] = (),
        access: Access | None = None,
        on_started: Callable[[int], None] | None = None,
        collector: IdleCollector | None = None,
    ) -> None:
        self._engine = engine
        self._on_started = on_started
        self._collector = collector
        self._num_idle_ticks = 0
        self._access = access or Access(config)
        self._lifecycle = Lifecycle()
        self._grace_s = config.grace_period_s
        self._drain: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tracing = open_tracing(config.otlp_endpoint)
        app = create_app(
            engine, config, self._lifecycle, extensions, self._tracing, self._access.tenants
        )
        tls = self._access.tls
        super().__init__(
            uvicorn.Config(
                app,
                host=config.host,
                port=config.port,
                loop="uvloop",
                http=cast(
                    type[HttpProtocol],
                    partial(
                        HttpProtocol,
                        receive_timeout_s=config.receive_timeout_s,
                        send_timeout_s=config.send_timeout_s,
                    ),
                ),
                ssl_context_factory=None if tls is None else lambda *_: tls,
                access_log=False,
                log_config=None,
                log_level="warning",
                server_header=False,
                timeout_graceful_shutdown=5,
                timeout_keep_alive=75,  # longer than clients' timeouts, so that they close first
                backlog=4096,
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self._on_started is not None:
            self._on_started(self.port)

    async def on_tick(self, counter: int) -> bool:
        """Collects garbage while no call runs; uvicorn calls it ten times a second."""
        if self._collector is not None:
            self._num_idle_ticks = 0 if self._lifecycle.num_calls else self._num_idle_ticks + 1
            if self._num_idle_ticks > _LONG_IDLE_TICKS and self._collector.wants_all:
                self._collector.collect_all()
            self._collector.collect(idle=self._num_idle_ticks > 0)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        await asyncio.to_thread(self._tracing.close)

    @property
    def port(self) -> int:
        """The port that it listens on, once it has started."""
        return int(self.servers[0].sockets[0].getsockname()[1])

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Starts draining; called as a signal handler in the main thread."""
        del sig, frame
        if self._loop is None:
            self.should_exit = True
            return
        self._loop.call_soon_threadsafe(self._begin_drain)

    def handle_hangup(self, sig: int, frame: FrameType | None) -> None:
        """Reloads keys and certificate if they come from files; otherwise starts draining."""
        if self._loop is None or not self._access.has_files:
            self.handle_exit(sig, frame)
        else:
            self._loop.call_soon_threadsafe(self._reload)

    def _reload(self) -> None:
        self._access.reload()
        self._engine.set_tenant_weights(self._access.tenants.weights())

    def stop(self) -> None:
        """Starts draining, from any thread."""
        self.handle_exit(0, None)

    def _begin_drain(self) -> None:
        if self._drain is not None:
            self._lifecycle.abort_all()
            return
        self._drain = asyncio.create_task(self._drain_then_exit())

    async def _drain_then_exit(self) -> None:
        logger.info("shutting down: %d calls are running", self._lifecycle.num_calls)
        await self._lifecycle.drain(self._grace_s)
        self.should_exit = True


def serve(
    engine: EngineApi,
    config: ServerConfig | None = None,
    *,
    extensions: Sequence[Extension] = (),
    access: Access | None = None,
    sockets: list[socket.socket] | None = None,
    on_started: Callable[[int], None] | None = None,
    collector: IdleCollector | None = None,
) -> None:
    """Serves ``engine`` over HTTP until a signal; returns after a graceful shutdown.

    Args:
        extensions: additional routes.
        access: tenants and certificate; None: those of the configuration's files.
        sockets: bound sockets to listen on; None: binds the configured host and port.
        on_started: called with the port once the server listens.
        collector: collects this process's garbage while no call runs; None: as Python does.

    Raises:
        InvalidParameterError: a file of keys or of the certificate can't be used.
        ListenError: the address can't be bound.
    """
    config = config or ServerConfig()
    access = access or Access(config)
    if config.access_log:
        _log_requests()
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    return_large_blocks()
    server = HttpServer(
        engine,
        config,
        extensions=extensions,
        access=access,
        on_started=on_started,
        collector=collector,
    )
    with _hangup_handled_by(server):
        server.run(bind(config.host, config.port) if sockets is None else sockets)


@contextlib.contextmanager
def _hangup_handled_by(server: HttpServer) -> Iterator[None]:
    """Handles SIGHUP, which uvicorn doesn't, unless it is ignored as by ``nohup``."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGHUP) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGHUP, server.handle_hangup)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def _log_requests() -> None:
    """Writes the access log, to stderr if logging isn't configured."""
    lines = logging.getLogger("ramet.access")
    lines.setLevel(logging.INFO)
    if not lines.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(TextFormatter(with_messages=False))
        lines.addHandler(handler)

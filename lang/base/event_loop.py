"""The shared event loop of synchronous callers: a daemon thread, started when needed."""

from __future__ import annotations

import asyncio
import os
import threading

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_loop_pid = 0


def shared_loop() -> asyncio.AbstractEventLoop:
    """The running loop on which programs of synchronous callers live."""
    global _loop, _loop_pid
    with _lock:
        if _loop is None or _loop.is_closed() or _loop_pid != os.getpid():
            _loop = asyncio.new_event_loop()
            _loop_pid = os.getpid()
            threading.Thread(target=_loop.run_forever, name="ramet-programs", daemon=True).start()
        return _loop


def on_shared_loop() -> bool:
    """Whether the caller runs on the shared loop's thread, which must never block."""
    try:
        return asyncio.get_running_loop() is _loop
    except RuntimeError:
        return False

"""The graph of a program with no model: the program runs until it looks at a value."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ramet.lang.base.errors import UsageError
from ramet.lang.base.event_loop import on_shared_loop, shared_loop
from ramet.lang.graph.graph import RequestGraph
from ramet.lang.run.context import RunContext
from ramet.lang.run.session import RunOptions, Session, TraceStopped
from ramet.lang.run.state import State
from ramet.lang.run.writer import Writer


def trace_graph(
    name: str, bind: Callable[[State], Callable[[], Any]], options: RunOptions
) -> RequestGraph:
    """Runs a program's function without a backend and returns the graph it makes."""
    if on_shared_loop():
        raise UsageError("a graph can't be traced from inside a running program")
    loop = shared_loop()
    return asyncio.run_coroutine_threadsafe(_trace(name, bind, options, loop), loop).result()


async def _trace(
    name: str,
    bind: Callable[[State], Callable[[], Any]],
    options: RunOptions,
    loop: asyncio.AbstractEventLoop,
) -> RequestGraph:
    session = Session(name, None, options, loop)
    session.begin()
    context = RunContext(session)
    try:
        await context.run_function(bind(State(Writer(context))))
    except TraceStopped as stop:
        session.stopped_at("", stop)
    try:
        await context.drain()
    finally:
        await context.cancel()
    return session.graph

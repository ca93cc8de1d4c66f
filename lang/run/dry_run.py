"""The graph of a program with no model: the program runs until it reads a value."""

from __future__ import annotations

import asyncio

from ramet.grammars.constraints import Choice, Constraint, JsonObject
from ramet.lang.base.errors import UsageError
from ramet.lang.base.event_loop import on_shared_loop, shared_loop
from ramet.lang.graph.graph import RequestGraph
from ramet.lang.run.outcomes import DryRunStopped
from ramet.lang.run.run import Bind
from ramet.lang.run.run_options import RunOptions
from ramet.lang.run.session import Caller, Session, current_caller
from ramet.lang.run.writer import Writer
from ramet.lang.types.matching import check_constraint
from ramet.lang.types.types import INTEGER, NUMBER


def dry_run(name: str, bind: Bind, options: RunOptions) -> RequestGraph:
    """Runs a program's function without a backend and returns the graph it makes.

    Raises:
        InvalidConstraintError: no engine could honour a call's constraint; names the argument.
    """
    if on_shared_loop():
        raise UsageError("a dry run can't be made from inside a running program")
    loop = shared_loop()
    work = _run(name, bind, options, loop)
    session = asyncio.run_coroutine_threadsafe(work, loop).result()
    for output in session.outputs.values():  # in the caller's thread: the loop is shared
        if output.constraint is not None and not _is_always_valid(output.constraint):
            check_constraint(output.constraint, output.option)
    return session.graph


def _is_always_valid(constraint: Constraint) -> bool:
    return isinstance(constraint, Choice | JsonObject) or constraint in (INTEGER, NUMBER)


async def _run(
    name: str, bind: Bind, options: RunOptions, loop: asyncio.AbstractEventLoop
) -> Session:
    session = Session(name, None, options, loop)
    session.outcomes.begin()
    current_caller.set(Caller(session))
    try:
        await session.run_function(bind(session, Writer(session)))
    except DryRunStopped as stop:
        session.outcomes.stopped_at("", stop)
    try:
        await session.drain()
    finally:
        await session.cancel()
    return session

"""The trace of a run, from its session."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ramet.lang.backends.base import writes_tool_calls
from ramet.lang.run.session import Session
from ramet.lang.trace.trace import Trace


def trace_of(session: Session, arguments: Mapping[str, Any]) -> Trace:
    """The records of a run's calls so far."""
    outcomes, executor = session.outcomes, session.executor
    assert executor is not None
    calls = [dataclasses.replace(record) for record in list(executor.records.values())]
    return Trace(
        program=session.graph.name,
        program_id=outcomes.program_id,
        seed=session.options.seed,
        began_at=executor.began_at,
        wall_s=max((record.finished_s or 0.0 for record in calls), default=0.0),
        calls=calls,
        texts={
            record.node_id: outcomes.result_of(record.node_id).text
            for record in calls
            if record.finished_s is not None and record.error is None and record.kind != "prefill"
        },
        arguments=dict(arguments),
        sampling=dict(session.options.sampling),
        chat_template_kwargs=dict(session.options.chat_template_kwargs),
        writes_tool_calls=writes_tool_calls(session.backend),
        backend="" if session.backend is None else session.backend.name,
    )

"""Trace: what every call of a run did, and when."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from functools import reduce
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from ramet.lang.base.errors import UsageError
from ramet.lang.run.executor import CallRecord
from ramet.lang.types.values import add_usage
from ramet.runtime.api.events import Usage

if TYPE_CHECKING:
    from ramet.lang.run.context import RunContext
    from ramet.lang.run.session import Session


@dataclass(frozen=True)
class Trace:
    """The record of a run.

    Attributes:
        program: the program's name.
        program_id: the run's own.
        seed: what the run's calls drew their seeds from.
        began_at: seconds since the epoch.
        wall_s: seconds from the run's begin to its last call's end.
        calls: a record a node, in the order in which the program made them.
        texts: what finished nodes gave, by node id.
        arguments: the program's arguments, by name, where they are known.
        sampling: the run's sampling defaults.
        backend: the name of what answered the calls.
    """

    program: str
    program_id: str
    seed: int
    began_at: float
    wall_s: float
    calls: list[CallRecord]
    texts: dict[str, str]
    arguments: dict[str, Any] = field(default_factory=dict)
    sampling: dict[str, Any] = field(default_factory=dict)
    backend: str = ""

    @classmethod
    def of(cls, session: Session, context: RunContext, arguments: dict[str, Any]) -> Trace:
        """The trace of a session as it is now."""
        executor = context.executor
        assert executor is not None
        calls = [dataclasses.replace(record) for record in list(executor.records.values())]
        texts = {
            record.node_id: session.result_of(record.node_id).text
            for record in calls
            if record.finished_s is not None and record.error is None and record.kind != "prefill"
        }
        return cls(
            program=session.graph.name,
            program_id=session.program_id,
            seed=session.options.seed,
            began_at=executor.began_at,
            wall_s=max((record.finished_s or 0.0 for record in calls), default=0.0),
            calls=calls,
            texts=texts,
            arguments=arguments,
            sampling=dict(session.options.sampling),
            backend="" if session.backend is None else session.backend.name,
        )

    @property
    def usage(self) -> Usage:
        """Tokens of all calls together."""
        return reduce(add_usage, (record.usage for record in self.calls), Usage())

    @property
    def num_calls(self) -> int:
        """Calls that the model answered."""
        return sum(record.kind in ("gen", "select") for record in self.calls)

    def to_json(self) -> dict[str, Any]:
        """The trace as JSON data. Arguments that JSON can't hold are written as text."""
        data: dict[str, Any] = to_jsonable_python(self, fallback=repr)
        return data

    @classmethod
    def from_json(cls, data: Any) -> Trace:
        """Reads what ``to_json`` gave.

        Raises:
            UsageError: data of another shape.
        """
        try:
            return TypeAdapter(cls).validate_python(data)
        except ValidationError as error:
            raise UsageError(f"not a trace: {error}") from error

    def chrome(self) -> dict[str, Any]:
        """The trace in Chrome's trace event format, for Perfetto or chrome://tracing."""
        from ramet.lang.trace.chrome import chrome

        return chrome(self)

    def otlp(self) -> dict[str, Any]:
        """The trace as OpenTelemetry spans (OTLP's JSON), with the GenAI semantic conventions."""
        from ramet.lang.trace.otlp import otlp

        return otlp(self)

    def html(self) -> str:
        """The trace as a page of its own: a timeline with a lane a branch."""
        from ramet.lang.trace.timeline import timeline

        return timeline(self)

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{escape(self.html())}" style="width:100%;height:400px"></iframe>'

    def save(self, path: str | Path) -> None:
        """Writes the trace: ``.html`` a timeline, ``.ramet.json`` its own form, ``.otlp.json``
        OpenTelemetry's, any other ``.json`` Chrome's.

        Raises:
            UsageError: another ending.
        """
        path = Path(path)
        if path.suffix == ".html":
            path.write_text(self.html(), encoding="utf-8")
            return
        if path.suffix != ".json":
            raise UsageError(f"a trace is written as .json or .html, not {path.name!r}")
        kinds = {".ramet": self.to_json, ".otlp": self.otlp}
        data = kinds.get(Path(path.stem).suffix, self.chrome)()
        path.write_text(json.dumps(data, ensure_ascii=False), encoding="utf-8")


def lane_of(node_id: str) -> str:
    """The branch of a node, as lanes name it."""
    return node_id.rpartition(".")[0] or "main"

"""Trace: what every call of a run did, and when."""

from __future__ import annotations

import json
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from ramet.grammars.constraints.json_reader import JsonFault, read_json
from ramet.lang.base.errors import UsageError
from ramet.lang.trace.chrome import chrome
from ramet.lang.trace.diff import TraceDiff, diff
from ramet.lang.trace.records import RunRecord
from ramet.lang.trace.timeline import timeline_page


@dataclass(frozen=True)
class Trace(RunRecord):
    """The record of a run, and its exports."""

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
            return read_json(TypeAdapter(cls), data, lambda _: ())
        except JsonFault as fault:
            place = ".".join(map(str, fault.path))
            raise UsageError(f"not a trace: {place or 'it'}: {fault.reason}") from None

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Reads a file that ``save`` wrote in Ramet's own form.

        Raises:
            UsageError: no such file, or it holds no trace.
        """
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UsageError(f"{path} is not a trace: {error}") from None
        if isinstance(data, dict) and data.keys() & {"traceEvents", "resourceSpans"}:
            raise UsageError(f"{path} is an export; a trace to load is saved as .ramet.json")
        return cls.from_json(data)

    def diff(self, other: RunRecord) -> TraceDiff:
        """Where another run of the program differs from this one; print it, or read its fields."""
        return diff(self, other)

    def chrome(self) -> dict[str, Any]:
        """The trace in Chrome's trace event format, for Perfetto or chrome://tracing."""
        return chrome(self)

    def otlp(self) -> dict[str, Any]:
        """The trace as OpenTelemetry spans in OTLP's JSON, by the conventions for generative AI.

        Raises:
            UsageError: OpenTelemetry isn't installed.
        """
        try:
            from ramet.lang.trace.otlp import otlp
        except ImportError as error:
            raise UsageError("spans need OpenTelemetry: pip install 'ramet[otel]'") from error
        return otlp(self)

    def html(self) -> str:
        """The trace as a page of its own: a timeline with a lane a branch."""
        return timeline_page(self)

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
            raise UsageError(
                f"a trace is written as .ramet.json (to load and replay), .otlp.json, .json "
                f"(Chrome's format) or .html, not {path.name!r}"
            )
        kinds = {".ramet": self.to_json, ".otlp": self.otlp}
        data = kinds.get(Path(path.stem).suffix, self.chrome)()
        path.write_text(json.dumps(data, ensure_ascii=False), encoding="utf-8")

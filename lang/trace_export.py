"""A trace in the formats of other tools."""

from __future__ import annotations

import hashlib
from typing import Any

from ramet.lang.executor import CallRecord
from ramet.lang.trace import Trace, lane_of


def chrome(trace: Trace) -> dict[str, Any]:
    """Chrome's trace event format: a complete event a call, a thread a branch, times in µs.

    Format: "Trace Event Format", Google, 2016.
    """
    lanes = {lane: number for number, lane in enumerate(_lanes(trace))}
    events: list[dict[str, Any]] = [
        {
            "name": "thread_name",
            "ph": "M",
            "pid": 1,
            "tid": number,
            "args": {"name": f"branch {lane}"},
        }
        for lane, number in lanes.items()
    ]
    for record in trace.calls:
        tid = lanes[lane_of(record.node_id)]
        for name, begin, end in phases(record):
            events.append(
                {
                    "name": f"{record.name}: {name}" if name != record.kind else record.name,
                    "cat": record.kind,
                    "ph": "X",
                    "pid": 1,
                    "tid": tid,
                    "ts": round(begin * 1e6),
                    "dur": max(0, round((end - begin) * 1e6)),
                    "args": facts(record),
                }
            )
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def otlp(trace: Trace) -> dict[str, Any]:
    """OTLP's JSON encoding: one span for the run and one a call."""
    trace_id = hashlib.blake2b(trace.program_id.encode(), digest_size=16).hexdigest()
    root_id = _span_id(trace, "run")
    spans = [
        _span(trace, trace_id, root_id, None, trace.program, 0.0, trace.wall_s, {}),
    ]
    for record in trace.calls:
        end = record.finished_s if record.finished_s is not None else trace.wall_s
        attributes: dict[str, Any] = {
            "ramet.node_id": record.node_id,
            "gen_ai.operation.name": "execute_tool" if record.kind == "tool" else "text_completion",
        }
        if record.kind == "tool":
            attributes["gen_ai.tool.name"] = record.name
        else:
            attributes["gen_ai.usage.input_tokens"] = record.usage.prompt_tokens
            attributes["gen_ai.usage.output_tokens"] = record.usage.completion_tokens
            attributes["gen_ai.usage.cache_read.input_tokens"] = record.usage.cached_tokens
        if record.error is not None:
            attributes["error.type"] = record.error
        span_id = _span_id(trace, record.node_id)
        spans.append(
            _span(trace, trace_id, span_id, root_id, record.name, record.added_s, end, attributes)
        )
    scope = {"scope": {"name": "ramet.lang"}, "spans": spans}
    service = {"key": "service.name", "value": {"stringValue": "ramet"}}
    return {"resourceSpans": [{"resource": {"attributes": [service]}, "scopeSpans": [scope]}]}


def phases(record: CallRecord) -> list[tuple[str, float, float]]:
    """What a call spent its time on: (phase, begin, end), in seconds since the run began."""
    if record.sent_s is None:
        return []
    end = record.finished_s if record.finished_s is not None else record.sent_s
    if record.kind in ("tool", "join", "prefill"):
        return [(record.kind, record.sent_s, end)]
    timings = record.timings
    marks = [("queued", record.sent_s)]
    if timings.scheduled_s is not None:
        marks.append(("prefill", record.sent_s + timings.scheduled_s))
    first = record.sent_s + timings.first_token_s if timings.first_token_s else record.first_text_s
    if first is not None:
        marks.append(("decode", first))
    if len(marks) == 1:
        return [(record.kind, record.sent_s, end)]
    ends = [begin for _, begin in marks[1:]] + [end]
    return [(name, begin, stop) for (name, begin), stop in zip(marks, ends, strict=True)]


def facts(record: CallRecord) -> dict[str, Any]:
    """A call's numbers, without what is empty."""
    usage = record.usage
    numbers = {
        "node": record.node_id,
        "waited_s": None if record.sent_s is None else round(record.sent_s - record.added_s, 6),
        "prompt_tokens": usage.prompt_tokens,
        "cached_tokens": usage.cached_tokens,
        "computed_tokens": usage.prompt_tokens - usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
        "forced_tokens": usage.forced_tokens,
        "grammar_s": round(record.timings.grammar_s, 6),
        "finish_reason": record.finish_reason,
        "error": record.error,
    }
    return {name: value for name, value in numbers.items() if value}


def _lanes(trace: Trace) -> list[str]:
    return list(dict.fromkeys(["main", *(lane_of(record.node_id) for record in trace.calls)]))


def _span_id(trace: Trace, name: str) -> str:
    return hashlib.blake2b(f"{trace.program_id}/{name}".encode(), digest_size=8).hexdigest()


def _span(
    trace: Trace,
    trace_id: str,
    span_id: str,
    parent_id: str | None,
    name: str,
    begin_s: float,
    end_s: float,
    attributes: dict[str, Any],
) -> dict[str, Any]:
    span: dict[str, Any] = {
        "traceId": trace_id,
        "spanId": span_id,
        "name": name,
        "kind": 3 if parent_id else 1,
        "startTimeUnixNano": str(int((trace.began_at + begin_s) * 1e9)),
        "endTimeUnixNano": str(int((trace.began_at + end_s) * 1e9)),
        "attributes": [
            {
                "key": key,
                "value": {"intValue": str(value)}
                if isinstance(value, int)
                else {"stringValue": str(value)},
            }
            for key, value in attributes.items()
        ],
    }
    if parent_id:
        span["parentSpanId"] = parent_id
    if "error.type" in attributes:
        span["status"] = {"code": 2, "message": str(attributes["error.type"])}
    return span

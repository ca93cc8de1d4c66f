"""The phases of a trace's calls, and their export in Chrome's trace event format."""

from __future__ import annotations

from typing import Any

from ramet.lang.trace.records import CallRecord, RunRecord, lane_of


def chrome(trace: RunRecord) -> dict[str, Any]:
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


def phases(record: CallRecord) -> list[tuple[str, float, float]]:
    """A call's phases: (phase, begin, end), in seconds since the run began."""
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


def _lanes(trace: RunRecord) -> list[str]:
    return list(dict.fromkeys(["main", *(lane_of(record.node_id) for record in trace.calls)]))

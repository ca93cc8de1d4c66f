"""A trace as OpenTelemetry spans, in OTLP's JSON encoding.

Attributes are those of the semantic conventions for generative AI: the run is a workflow, and
under it is a client span for each call of the model and an internal one for each tool. What a
convention has no word for is named ``ramet.``.
"""

from __future__ import annotations

import hashlib
from typing import Any

from ramet.lang.trace.chrome import facts
from ramet.lang.trace.records import CallRecord, RunRecord, lane_of
from ramet.runtime.api.params import SAMPLING_PARAMS

_INTERNAL, _CLIENT = 1, 3
_ERROR = 2

_REQUEST_ATTRIBUTES = {
    name: spec.trace_attribute for name, spec in SAMPLING_PARAMS.items() if spec.trace_attribute
}


def otlp(trace: RunRecord) -> dict[str, Any]:
    """One span for the run and one a call, as an exporter would post them."""
    trace_id = hashlib.blake2b(trace.program_id.encode(), digest_size=16).hexdigest()
    root_id = _span_id(trace, "run")
    failed = next((record.error_type for record in trace.calls if record.error_type), None)
    root = {
        "gen_ai.operation.name": "invoke_workflow",
        "gen_ai.workflow.name": trace.program,
        "ramet.program_id": trace.program_id,
        "ramet.seed": trace.seed,
        "error.type": failed,
    }
    spans = [
        {
            "name": f"invoke_workflow {trace.program}",
            "kind": _INTERNAL,
            "spanId": root_id,
            **_times(trace, 0.0, trace.wall_s),
            **_outcome(root, None),
        }
    ]
    for index, record in enumerate(trace.calls):
        end = record.finished_s if record.finished_s is not None else trace.wall_s
        is_model = record.kind in ("gen", "select", "prefill")
        attributes = _model_call(trace, record) if is_model else _own_code(record)
        spans.append(
            {
                "name": _name(record, attributes),
                "kind": _CLIENT if is_model else _INTERNAL,
                "spanId": _span_id(trace, f"{index} {record.node_id}"),
                "parentSpanId": root_id,
                **_times(trace, record.added_s, end),
                **_outcome(attributes, record.error),
            }
        )
    scope = {
        "scope": {"name": "ramet.lang"},
        "spans": [{"traceId": trace_id, **span} for span in spans],
    }
    resource = {"attributes": _attributes({"service.name": "ramet"})}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}


def _model_call(trace: RunRecord, record: CallRecord) -> dict[str, Any]:
    kind, _, place = trace.backend.partition(":")
    usage = record.usage
    reasons = None if record.finish_reason is None else [record.finish_reason]
    return {
        "gen_ai.operation.name": "chat" if record.is_chat else "text_completion",
        "gen_ai.provider.name": "ramet" if kind == "engine" else kind,
        "gen_ai.request.model": place if kind == "engine" else None,
        "server.address": place if place.startswith("http") else None,
        **{
            _REQUEST_ATTRIBUTES[k]: v for k, v in record.request.items() if k in _REQUEST_ATTRIBUTES
        },
        "gen_ai.response.finish_reasons": reasons,
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.output_tokens": usage.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
        **_common(record),
    }


def _own_code(record: CallRecord) -> dict[str, Any]:
    if record.kind != "tool":
        return _common(record)
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": record.name,
        "gen_ai.tool.type": "function",
        **_common(record),
    }


def _common(record: CallRecord) -> dict[str, Any]:
    own = ("waited_s", "computed_tokens", "forced_tokens", "grammar_s")
    numbers = {f"ramet.{name}": value for name, value in facts(record).items() if name in own}
    return {
        "ramet.node_id": record.node_id,
        "ramet.node_kind": record.kind,
        "ramet.variable": record.name,
        "ramet.branch": lane_of(record.node_id),
        **numbers,
        "error.type": record.error_type,
    }


def _name(record: CallRecord, attributes: dict[str, Any]) -> str:
    operation = attributes.get("gen_ai.operation.name")
    if operation is None:
        return f"{record.kind} {record.name}"
    of = record.name if record.kind == "tool" else attributes.get("gen_ai.request.model")
    return f"{operation} {of}" if of else str(operation)


def _times(trace: RunRecord, begin_s: float, end_s: float) -> dict[str, str]:
    return {
        "startTimeUnixNano": str(int((trace.began_at + begin_s) * 1e9)),
        "endTimeUnixNano": str(int((trace.began_at + end_s) * 1e9)),
    }


def _outcome(attributes: dict[str, Any], message: str | None) -> dict[str, Any]:
    data: dict[str, Any] = {"attributes": _attributes(attributes)}
    if attributes["error.type"] is not None:
        data["status"] = {"code": _ERROR, "message": message or attributes["error.type"]}
    return data


def _attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"key": key, "value": _value(value)} for key, value in values.items() if value is not None
    ]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list | tuple):
        return {"arrayValue": {"values": [_value(item) for item in value]}}
    return {"stringValue": str(value)}


def _span_id(trace: RunRecord, name: str) -> str:
    return hashlib.blake2b(f"{trace.program_id}/{name}".encode(), digest_size=8).hexdigest()

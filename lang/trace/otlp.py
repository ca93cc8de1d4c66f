"""A trace as OpenTelemetry spans: a workflow, with a client span for each call of the model and an
internal one for each tool.

What the conventions have no attribute for is named ``ramet.``. Needs the extra ``otel``.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Sequence
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context

from ramet.lang.trace.chrome import facts
from ramet.lang.trace.records import CallRecord, RunRecord, lane_of
from ramet.runtime.api.genai_attributes import (
    PROVIDER,
    Attributes,
    finish_attributes,
    model_attributes,
    sampling_attributes,
    usage_attributes,
    workflow_attributes,
)

_OWN_FACTS = ("waited_s", "computed_tokens", "grammar_s")


def otlp(trace: RunRecord) -> dict[str, Any]:
    """The trace in OTLP's JSON encoding, as an exporter would post it."""
    request = encode_spans(spans(trace))
    data: dict[str, Any] = MessageToDict(request, use_integers_for_enums=True)
    for span in data["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        for name in ("traceId", "spanId", "parentSpanId"):
            if name in span:  # OTLP's JSON has ids in hexadecimal, protobuf's has base64
                span[name] = base64.b64decode(span[name]).hex()
    return data


def spans(trace: RunRecord) -> Sequence[ReadableSpan]:
    """One span for the run, then one a call. A trace always has the same ids."""
    finished = InMemorySpanExporter()
    provider = TracerProvider(
        id_generator=_Ids(trace.program_id),
        resource=Resource({SERVICE_NAME: "ramet"}),
        shutdown_on_exit=False,
    )
    provider.add_span_processor(SimpleSpanProcessor(finished))
    tracer = provider.get_tracer("ramet.lang")

    def time_ns(seconds: float) -> int:
        return int((trace.began_at + seconds) * 1e9)

    root = tracer.start_span(
        f"invoke_workflow {trace.program}",
        start_time=time_ns(0.0),
        attributes={
            "gen_ai.operation.name": "invoke_workflow",
            **workflow_attributes(trace.program),
            "ramet.program_id": trace.program_id,
            "ramet.seed": trace.seed,
        },
    )
    failed = next((record for record in trace.calls if record.error_type), None)
    if failed is not None:
        _mark_failed(root, failed.error_type, failed.error_type)
    root.end(time_ns(trace.wall_s))
    for record in trace.calls:
        is_model = record.kind in ("gen", "select", "prefill")
        attributes = _model_call(trace, record) if is_model else _own_code(record)
        span = tracer.start_span(
            _name(record, attributes),
            set_span_in_context(root),
            kind=SpanKind.CLIENT if is_model else SpanKind.INTERNAL,
            start_time=time_ns(record.added_s),
            attributes={name: value for name, value in attributes.items() if value is not None},
        )
        _mark_failed(span, record.error_type, record.error)
        span.end(time_ns(trace.wall_s if record.finished_s is None else record.finished_s))
    return finished.get_finished_spans()


class _Ids(IdGenerator):
    """Ids that are the same each time that a trace is written."""

    def __init__(self, key: str) -> None:
        self._random = random.Random(key)

    def generate_span_id(self) -> int:
        return self._random.randrange(1, 1 << 64)

    def generate_trace_id(self) -> int:
        return self._random.randrange(1, 1 << 128)


def _model_call(trace: RunRecord, record: CallRecord) -> Attributes:
    kind, _, place = trace.backend.partition(":")
    is_local = kind == "engine"
    operation = "chat" if record.is_chat else "text_completion"
    reasons = {} if record.finish_reason is None else finish_attributes([record.finish_reason])
    return {
        **model_attributes(operation, place if is_local else None, PROVIDER if is_local else kind),
        "server.address": place if place.startswith("http") else None,
        **sampling_attributes(record.request),
        **reasons,
        **usage_attributes([record.usage], record.usage.prompt_tokens),
        **_common(record),
    }


def _own_code(record: CallRecord) -> Attributes:
    if record.kind != "tool":
        return _common(record)
    return {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": record.name,
        "gen_ai.tool.type": "function",
        **_common(record),
    }


def _common(record: CallRecord) -> Attributes:
    numbers = {f"ramet.{k}": value for k, value in facts(record).items() if k in _OWN_FACTS}
    return {
        "ramet.node_id": record.node_id,
        "ramet.node_kind": record.kind,
        "ramet.variable": record.name,
        "ramet.branch": lane_of(record.node_id),
        **numbers,
    }


def _name(record: CallRecord, attributes: Attributes) -> str:
    operation = attributes.get("gen_ai.operation.name")
    if operation is None:
        return f"{record.kind} {record.name}"
    of = record.name if record.kind == "tool" else attributes.get("gen_ai.request.model")
    return f"{operation} {of}" if of else str(operation)


def _mark_failed(span: Span, kind: str | None, message: str | None) -> None:
    if kind is not None:
        span.set_attribute("error.type", kind)
        span.set_status(Status(StatusCode.ERROR, message or kind))

"""Traces by OpenTelemetry, under its semantic conventions for HTTP servers and generative AI.

https://opentelemetry.io/docs/specs/semconv/http/http-spans/
https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/

A request is a server span, whose parent is the client's, if it sent a ``traceparent``; a request's
time in the engine is its children ``grammar``, ``queued``, ``prefill`` and ``decode``. A program's
calls of the model are its children, each with those. Prompts and answers are never in a span.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from ramet.grammars.constraints import JsonObject, JsonSchema
from ramet.runtime.api.events import Failed, Finished, Timings
from ramet.runtime.api.genai_attributes import (
    finish_attributes,
    model_attributes,
    sampling_attributes,
    usage_attributes,
    workflow_attributes,
)
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import Request
from ramet.runtime.server.observability.trace import Choice, Scope, Trace, Tracing

_FLUSH_TIMEOUT_S = 3.0
_WARNING_PAUSE_S = 60.0
_UNTRACED = frozenset({"/health", "/ready", "/version", "/metrics", "/openapi.json"})
_OPERATIONS = {
    "/v1/completions": "text_completion",
    "/v1/embeddings": "embeddings",
    "/v1/programs": "invoke_workflow",
}
"""Operation names of the conventions by path; others are ``chat``."""

_PROPAGATOR = TraceContextTextMapPropagator()


class RateLimitFilter(logging.Filter):
    """Passes at most one log record every ``pause_s`` seconds."""

    def __init__(self, pause_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._pause_s = pause_s
        self._clock = clock
        self._next = -math.inf

    def filter(self, record: logging.LogRecord) -> bool:
        del record
        now = self._clock()
        if now < self._next:
            return False
        self._next = now + self._pause_s
        return True


class OtelTracing(Tracing):
    """Starts spans and passes ended ones to ``processor``."""

    def __init__(self, processor: SpanProcessor) -> None:
        version = importlib.metadata.version("ramet")
        resource = Resource.create({SERVICE_VERSION: version})
        if str(resource.attributes.get(SERVICE_NAME, "unknown_service")).startswith("unknown_"):
            resource = resource.merge(Resource({SERVICE_NAME: "ramet"}))
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("ramet.server", version)

    @classmethod
    def to_endpoint(cls, endpoint: str | None) -> OtelTracing:
        """Exports spans in batches, in a thread, to an OTLP endpoint (HTTP and protobuf).

        None: the endpoint of the environment. Spans that can't be sent are dropped with a warning;
        no request waits for the exporter.
        """
        if endpoint is not None and not endpoint.endswith("/v1/traces"):
            endpoint = endpoint.rstrip("/") + "/v1/traces"
        # The exporter logs every failed attempt, several times in five seconds.
        logging.getLogger(OTLPSpanExporter.__module__).addFilter(RateLimitFilter(_WARNING_PAUSE_S))
        return cls(BatchSpanProcessor(OTLPSpanExporter(endpoint)))

    def start(self, scope: Scope, request_id: str) -> Trace:
        if scope["path"] in _UNTRACED:
            return Trace()
        headers = {
            name.decode("latin-1"): text.decode("latin-1") for name, text in scope["headers"]
        }
        attributes: dict[str, AttributeValue] = {
            "http.request.method": scope["method"],
            "url.path": scope["path"],
            "url.scheme": scope.get("scheme", "http"),
            "ramet.request_id": request_id,
        }
        address, port = scope.get("server") or ("", None)
        if port is not None:
            attributes |= {"server.address": address, "server.port": port}
        span = self._tracer.start_span(
            scope["method"],
            _PROPAGATOR.extract(headers),
            kind=SpanKind.SERVER,
            attributes=attributes,
        )
        return OtelTrace(self._tracer, span, scope["method"], scope["path"])

    def close(self) -> None:
        """Flushes; a collector that doesn't answer delays this for a few seconds at most."""
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        closing.join(_FLUSH_TIMEOUT_S)


class OtelTrace(Trace):
    """A server span and its children."""

    def __init__(self, tracer: Tracer, span: Span, method: str, path: str) -> None:
        self._tracer = tracer
        self._span = span
        self._method = method
        self._operation = _OPERATIONS.get(path, "chat")
        self._name: str | None = None
        self._model = ""
        self._choices: Sequence[Choice] = ()
        self._ends: list[Finished | Failed] = []
        self._prompt_tokens = 0
        self._num_choices = 1  # of each prompt

    def describe(self, model: str, choices: Sequence[Choice] = ()) -> None:
        self._model = model
        self._choices = choices

    def begin_call(self, call_id: str, requests: Sequence[Request]) -> None:
        if not self._span.is_recording():
            return
        self._begin(call_id, requests[0].tenant, self._model)
        # Choices of one prompt share its tuple, so count each tuple once.
        prompts = {id(each.prompt_token_ids): len(each.prompt_token_ids) for each in requests}
        self._prompt_tokens = sum(prompts.values())
        self._num_choices = len(requests) // len(prompts)
        self._span.set_attributes(_request_attributes(requests[0]))
        if self._num_choices > 1:
            self._span.set_attribute("gen_ai.request.choice.count", self._num_choices)

    def record_end(self, event: Finished | Failed) -> None:
        self._ends.append(event)
        if isinstance(event, Finished) and self._span.is_recording():
            self._add_phases(self._span, event.timings)

    def begin_program(self, call_id: str, name: str, tenant: str) -> None:
        if self._span.is_recording():
            self._begin(call_id, tenant, name)
            self._span.set_attributes(workflow_attributes(name))

    def record_node_end(self, request: Request, event: Finished | Failed) -> None:
        if not self._span.is_recording():
            return
        self._ends.append(event)
        self._prompt_tokens += event.usage.prompt_tokens
        lasted_s = event.timings.finished_s if isinstance(event, Finished) else None
        node = self._tracer.start_span(
            f"text_completion {self._model}",
            set_span_in_context(self._span),
            start_time=time.time_ns() - int((lasted_s or 0.0) * 1e9),
            attributes={
                **_model_attributes("text_completion", self._model),
                **_request_attributes(request),
                **usage_attributes([event.usage], event.usage.prompt_tokens),
            },
        )
        if isinstance(event, Finished):
            node.set_attributes(finish_attributes([event.reason]))
            self._add_phases(node, event.timings)
        else:
            _mark_failed(node, event.error.code or event.error.type)
        node.end()

    def close(self) -> None:
        if not self._ends or not self._span.is_recording():
            return
        # With several choices, all but the first find the prompt cached: not a cache statistic.
        usages = [event.usage for event in self._ends]
        used = usage_attributes(usages, self._prompt_tokens, with_cached=self._num_choices == 1)
        self._span.set_attributes(used)
        if self._operation in ("chat", "text_completion"):
            self._span.set_attributes(finish_attributes(self._finish_reasons()))
        failed = next((event.error for event in self._ends if isinstance(event, Failed)), None)
        if failed is not None and self._operation != "invoke_workflow":
            _mark_failed(self._span, failed.code or failed.type)

    def end(self, route: str | None, status: int) -> None:
        if route is not None:
            self._span.set_attribute("http.route", route)
        if self._name is None:
            self._span.update_name(f"{self._method} {route}" if route else self._method)
        self._span.set_attribute("http.response.status_code", status)
        if status >= 500:
            _mark_failed(self._span, str(status))
        self._span.end()

    def _begin(self, call_id: str, tenant: str, subject: str) -> None:
        self._name = f"{self._operation} {subject}".rstrip()
        self._span.update_name(self._name)
        self._span.set_attributes(_model_attributes(self._operation, self._model))
        self._span.set_attributes({"gen_ai.response.id": call_id, "ramet.tenant": tenant})

    def _finish_reasons(self) -> list[str]:
        if self._choices:
            return [each.finish_reason for each in self._choices if each.finished is not None]
        return [event.reason for event in self._ends if isinstance(event, Finished)]

    def _add_phases(self, parent: Span, timings: Timings) -> None:
        """Adds child spans for the phases of a request that has just ended."""
        context = set_span_in_context(parent)
        submitted_ns = time.time_ns() - int((timings.finished_s or 0.0) * 1e9)
        for name, begin_s, end_s in _phases(timings):
            begin_ns = submitted_ns + int(begin_s * 1e9)
            child = self._tracer.start_span(name, context, start_time=begin_ns)
            child.end(submitted_ns + int(end_s * 1e9))


def _mark_failed(span: Span, kind: str) -> None:
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR))


def _phases(timings: Timings) -> Iterator[tuple[str, float, float]]:
    """Yields a request's phases as (name, begin, end), in seconds since its submission."""
    marks = [("grammar", 0.0), ("queued", timings.grammar_s)]
    if timings.scheduled_s is not None:
        marks.append(("prefill", timings.scheduled_s))
    if timings.first_token_s is not None:
        marks.append(("decode", timings.first_token_s))
    ends = [begin for _, begin in marks[1:]] + [timings.finished_s or marks[-1][1]]
    for (name, begin), end in zip(marks, ends, strict=True):
        if end > begin:
            yield name, begin, end


def _model_attributes(operation: str, model: str) -> dict[str, AttributeValue]:
    return {**model_attributes(operation, model), "gen_ai.response.model": model}


def _request_attributes(request: Request) -> dict[str, AttributeValue]:
    """Attributes of a request, without the prompt."""
    attributes: dict[str, AttributeValue] = {}
    if not request.pooling:
        attributes |= _sampling_attributes(request.params)
        is_json = isinstance(request.constraint, JsonObject | JsonSchema)
        attributes["gen_ai.output.type"] = "json" if is_json else "text"
    if request.constraint is not None:
        attributes["ramet.constraint"] = request.constraint.kind
    if request.hint is not None:
        attributes["ramet.program_id"] = request.hint.program_id
        attributes["ramet.node_id"] = request.hint.node_id
    return attributes


def _sampling_attributes(params: SamplingParams) -> dict[str, AttributeValue]:
    """Sampling parameters that differ from their defaults, and the temperature."""
    default = SamplingParams()
    given = {
        field.name: value
        for field in dataclasses.fields(params)
        if (value := getattr(params, field.name)) is not None
        and (value != getattr(default, field.name) or field.name == "temperature")
    }
    return sampling_attributes(given)

"""Traces by OpenTelemetry, under its semantic conventions for HTTP servers and generative AI.

https://opentelemetry.io/docs/specs/semconv/http/http-spans/
https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/

A request is a server span, whose parent is the client's, if it sent a ``traceparent``; a request's
time in the engine is its children ``grammar``, ``queued``, ``prefill`` and ``decode``. Prompts and
answers are never in a span.
"""

from __future__ import annotations

import importlib.metadata
import threading
import time
from collections.abc import Iterator, Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from ramet.grammars.constraints import JsonObject, JsonSchema
from ramet.runtime.events import Failed, Finished, Timings
from ramet.runtime.params import SamplingParams
from ramet.runtime.request import Request
from ramet.runtime.server.tracing import Choice, Scope, Trace, Tracing

_PROVIDER = "ramet"
_LAST_WORDS_S = 3.0
_UNTRACED = frozenset({"/health", "/ready", "/version", "/metrics", "/openapi.json"})
_OPERATIONS = {"/v1/completions": "text_completion", "/v1/embeddings": "embeddings"}
"""The conventions' names of what a path does, where it isn't ``chat``."""

_PROPAGATOR = TraceContextTextMapPropagator()


class OtelTracing(Tracing):
    """Begins spans, and hands ended ones to ``processor``, whose faults are its own."""

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
        """Sends spans in batches, from a thread of its own, to a collector's OTLP endpoint (HTTP
        and protobuf); None: to where the environment says.

        What can't be sent is dropped, after a warning; no request waits for it.
        """
        if endpoint is not None and not endpoint.endswith("/v1/traces"):
            endpoint = endpoint.rstrip("/") + "/v1/traces"
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
        """A collector that doesn't answer holds the end up for a few seconds at most."""
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        closing.join(_LAST_WORDS_S)


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
        self._submitted_ns = 0

    def describe(self, model: str, choices: Sequence[Choice] = ()) -> None:
        self._model = model
        self._choices = choices

    def begin(self, call_id: str, requests: Sequence[Request]) -> None:
        self._submitted_ns = time.time_ns()
        if not self._span.is_recording():
            return
        self._name = f"{self._operation} {self._model}".rstrip()
        self._span.update_name(self._name)
        # Choices of one prompt share its tuple, which is read once for all of them.
        prompts = {id(each.prompt_token_ids): len(each.prompt_token_ids) for each in requests}
        self._prompt_tokens = sum(prompts.values())
        self._num_choices = len(requests) // len(prompts)
        first = requests[0]
        attributes: dict[str, AttributeValue] = {
            "gen_ai.operation.name": self._operation,
            "gen_ai.provider.name": _PROVIDER,
            "gen_ai.request.model": self._model,
            "gen_ai.response.model": self._model,
            "gen_ai.response.id": call_id,
            "ramet.tenant": first.tenant,
        }
        if not first.pooling:
            attributes |= _sampling(first.params)
            is_json = isinstance(first.constraint, JsonObject | JsonSchema)
            attributes["gen_ai.output.type"] = "json" if is_json else "text"
            if self._num_choices > 1:
                attributes["gen_ai.request.choice.count"] = self._num_choices
        if first.constraint is not None:
            attributes["ramet.constraint"] = first.constraint.kind
        if first.hint is not None:
            attributes["ramet.program_id"] = first.hint.program_id
            attributes["ramet.node_id"] = first.hint.node_id
        self._span.set_attributes(attributes)

    def note_end(self, event: Finished | Failed) -> None:
        self._ends.append(event)
        if isinstance(event, Finished) and self._span.is_recording():
            self._add_phases(event.timings)

    def close(self) -> None:
        if not self._ends or not self._span.is_recording():
            return
        usages = [event.usage for event in self._ends]
        self._span.set_attributes(
            {
                "gen_ai.usage.input_tokens": self._prompt_tokens,
                "gen_ai.usage.output_tokens": sum(usage.completion_tokens for usage in usages),
                "ramet.usage.forced_tokens": sum(usage.forced_tokens for usage in usages),
            }
        )
        if self._num_choices == 1:  # a prompt's other choices find it cached by the first
            cached = sum(usage.cached_tokens for usage in usages)
            self._span.set_attribute("gen_ai.usage.cache_read.input_tokens", cached)
        if self._operation != "embeddings":
            self._span.set_attribute("gen_ai.response.finish_reasons", self._finish_reasons())
        failed = next((event.error for event in self._ends if isinstance(event, Failed)), None)
        if failed is not None:
            self._fail(failed.code or failed.type)

    def end(self, route: str | None, status: int) -> None:
        if route is not None:
            self._span.set_attribute("http.route", route)
        if self._name is None:
            self._span.update_name(f"{self._method} {route}" if route else self._method)
        self._span.set_attribute("http.response.status_code", status)
        if status >= 500:
            self._fail(str(status))
        self._span.end()

    def _finish_reasons(self) -> list[str]:
        if self._choices:
            return [each.finish_reason for each in self._choices if each.finished is not None]
        return [event.reason for event in self._ends if isinstance(event, Finished)]

    def _fail(self, kind: str) -> None:
        self._span.set_attribute("error.type", kind)
        self._span.set_status(Status(StatusCode.ERROR))

    def _add_phases(self, timings: Timings) -> None:
        context = set_span_in_context(self._span)
        for name, begin_s, end_s in _phases(timings):
            begin_ns = self._submitted_ns + int(begin_s * 1e9)
            child = self._tracer.start_span(name, context, start_time=begin_ns)
            child.end(self._submitted_ns + int(end_s * 1e9))


def _phases(timings: Timings) -> Iterator[tuple[str, float, float]]:
    """What a request's time went to: (phase, begin, end), in seconds since it was submitted."""
    marks = [("grammar", 0.0), ("queued", timings.grammar_s)]
    if timings.scheduled_s is not None:
        marks.append(("prefill", timings.scheduled_s))
    if timings.first_token_s is not None:
        marks.append(("decode", timings.first_token_s))
    ends = [begin for _, begin in marks[1:]] + [timings.finished_s or marks[-1][1]]
    for (name, begin), end in zip(marks, ends, strict=True):
        if end > begin:
            yield name, begin, end


def _sampling(params: SamplingParams) -> dict[str, AttributeValue]:
    """What was asked of the sampler, where it differs from its default."""
    default = SamplingParams()
    attributes: dict[str, AttributeValue] = {"gen_ai.request.temperature": params.temperature}
    for name, attribute in _SAMPLING.items():
        value = getattr(params, name)
        if value != getattr(default, name) and value is not None:
            attributes[attribute] = value
    return attributes


_SAMPLING = {
    "max_tokens": "gen_ai.request.max_tokens",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "seed": "gen_ai.request.seed",
    "stop": "gen_ai.request.stop_sequences",
}

"""Traces, as a collector on loopback gets them; and servers whose collector is none."""

from __future__ import annotations

import http.server
import logging
import socket
import threading

import pytest

from ramet.lang.serving import PROGRAMS
from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.server.config import ServerConfig
from ramet.runtime.server.observability import otlp_endpoint, tracing
from ramet.runtime.testing import server as testing
from ramet.runtime.testing.scripted_model import Script

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
)

from ramet.runtime.server.observability.otel import RateLimitFilter

TRACE_ID, PARENT_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Collector:
    """An OTLP endpoint that keeps what it gets."""

    def __init__(self):
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                collector.paths.add(self.path)
                collector.bodies.append(body)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.paths: set[str] = set()
        self.bodies: list[bytes] = []
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self):
        self._server.shutdown()
        self._server.server_close()

    def resources(self):
        for body in self.bodies:
            yield from ExportTraceServiceRequest.FromString(body).resource_spans

    def spans(self):
        return [s for r in self.resources() for scope in r.scope_spans for s in scope.spans]

    def servers(self):
        """The server spans, in the order of their ends."""
        return [span for span in self.spans() if span.kind == span.SPAN_KIND_SERVER]

    def children(self, parent):
        return {s.name: s for s in self.spans() if s.parent_span_id == parent.span_id}


def attributes(span):
    def plain(value):
        kind = value.WhichOneof("value")
        if kind == "array_value":
            return [plain(each) for each in value.array_value.values]
        return getattr(value, kind)

    return {each.key: plain(each.value) for each in span.attributes}


@pytest.fixture
def collector():
    collector = Collector()
    yield collector
    collector.close()


def traced(collector, *scripts, **options):
    return testing.scripted_server(scripts, otlp_endpoint=collector.url, **options)


def test_a_call_is_a_server_span_with_its_phases(collector):
    with traced(collector, ["Hello", " world"]) as server:
        answer = server.chat("a secret prompt", temperature=0, max_tokens=9, stop=["zz"])
    assert answer.status_code == 200
    assert collector.paths == {"/v1/traces"}
    (span,) = collector.servers()
    assert span.name == "chat m"
    assert span.parent_span_id == b""
    usage = answer.json()["usage"]
    found = attributes(span)
    assert found.pop("server.port") > 0
    assert found.pop("ramet.request_id") == answer.headers["x-request-id"]
    assert found == {
        "http.request.method": "POST",
        "http.route": "/v1/chat/completions",
        "http.response.status_code": 200,
        "url.path": "/v1/chat/completions",
        "url.scheme": "http",
        "server.address": "127.0.0.1",
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "ramet",
        "gen_ai.request.model": "m",
        "gen_ai.request.temperature": 0.0,
        "gen_ai.request.max_tokens": 9,
        "gen_ai.request.stop_sequences": ["zz"],
        "gen_ai.output.type": "text",
        "gen_ai.response.id": answer.json()["id"],
        "gen_ai.response.model": "m",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": usage["prompt_tokens"],
        "gen_ai.usage.output_tokens": usage["completion_tokens"],
        "gen_ai.usage.cache_read.input_tokens": 0,
        "ramet.usage.forced_tokens": 0,
        "ramet.tenant": "",
    }
    phases = collector.children(span)
    assert {"prefill", "decode"} <= set(phases) <= {"queued", "prefill", "decode"}
    assert span.start_time_unix_nano <= phases["prefill"].start_time_unix_nano
    assert phases["prefill"].end_time_unix_nano == phases["decode"].start_time_unix_nano
    for body in collector.bodies:
        assert b"secret" not in body
        assert b"world" not in body
    (resource,) = {
        r.resource.SerializeToString(): r.resource for r in collector.resources()
    }.values()
    assert attributes(resource)["service.name"] == "ramet"


def test_the_client_s_trace_goes_on(collector):
    headers = {"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-01"}
    unsampled = {"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-00"}
    body = {"model": "m", "prompt": "x"}
    with traced(collector, ["ok"]) as server:
        assert server.http.post("/v1/completions", json=body, headers=headers).status_code == 200
        assert server.http.post("/v1/completions", json=body, headers=unsampled).status_code == 200
    (span,) = collector.servers()
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE_ID, PARENT_ID)
    assert span.name == "text_completion m"
    assert {each.trace_id.hex() for each in collector.spans()} == {TRACE_ID}


def test_streams_tools_and_several_choices(collector):
    call = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    with traced(collector, [call]) as server:
        server.chat_stream("hi", n=2, tools=[tool])
    (span,) = collector.servers()
    found = attributes(span)
    assert found["gen_ai.response.finish_reasons"] == ["tool_calls", "tool_calls"]
    assert found["gen_ai.request.choice.count"] == 2
    names = [each.name for each in collector.spans() if each.parent_span_id == span.span_id]
    assert names.count("decode") == 2
    assert names.count("grammar") == 2


def test_the_other_apis(collector):
    with traced(collector, ["ok"]) as server:
        hi = [{"role": "user", "content": "hi"}]
        server.http.post("/v1/messages", json={"model": "m", "max_tokens": 5, "messages": hi})
        server.http.post("/v1/responses", json={"model": "m", "input": "hi"})
        server.http.post("/v1/embeddings", json={"model": "m", "input": ["a", "bb"]})
        server.complete(prompt="x", response_format={"type": "json_object"}, max_tokens=2)
    messages, responses, embeddings, completion = map(attributes, collector.servers())
    for found in (messages, responses):
        assert found["gen_ai.operation.name"] == "chat"
        assert found["gen_ai.response.finish_reasons"] == ["stop"]
    assert embeddings["gen_ai.operation.name"] == "embeddings"
    assert embeddings["gen_ai.usage.input_tokens"] == 3
    assert "gen_ai.response.finish_reasons" not in embeddings
    assert completion["gen_ai.output.type"] == "json"
    assert completion["gen_ai.response.finish_reasons"] == ["length"]


def test_a_program_s_calls_are_children_of_its_span(collector):
    nodes = [
        {"kind": "text", "id": "0", "parent": None, "parts": ["a secret "]},
        {"kind": "gen", "id": "1", "parent": "0", "name": "x", "params": {"max_tokens": 4}},
        {"kind": "gen", "id": "2", "parent": "1", "name": "y", "params": {"max_tokens": 5}},
    ]
    with traced(collector, ["ok"], extensions=(PROGRAMS,)) as server:
        graph = {"name": "two-calls", "nodes": nodes}
        answer = server.http.post("/v1/programs", json={"graph": graph, "stream": False})
    assert answer.status_code == 200, answer.text
    (span,) = collector.servers()
    assert span.name == "invoke_workflow two-calls"
    found = attributes(span)
    assert found["gen_ai.workflow.name"] == "two-calls"
    assert found["gen_ai.request.model"] == "m"
    assert found["gen_ai.response.id"] == answer.json()["id"]
    usage = answer.json()["usage"]
    assert found["gen_ai.usage.input_tokens"] == usage["prompt_tokens"]
    assert found["gen_ai.usage.output_tokens"] == usage["completion_tokens"]
    calls = [each for each in collector.spans() if each.parent_span_id == span.span_id]
    assert [each.name for each in calls] == ["text_completion m"] * 2
    for call, node_id, limit in zip(calls, ("1", "2"), (4, 5), strict=True):
        assert attributes(call)["ramet.node_id"] == node_id
        assert attributes(call)["gen_ai.request.max_tokens"] == limit
        assert "decode" in collector.children(call)
    assert all(b"secret" not in body for body in collector.bodies)


def test_what_fails_says_so(collector):
    def fail(batch):
        raise ValueError("a fault in a step")

    with traced(collector, ["ok"], model_options={"before_step": fail}) as server:
        assert server.complete(prompt="x", max_token=3).status_code == 400
        assert server.complete(prompt="x").status_code == 500
        assert server.http.get("/nowhere").status_code == 404
    wrong, fault, missing = collector.servers()
    assert wrong.name == "POST /v1/completions"
    assert attributes(wrong)["http.response.status_code"] == 400
    assert wrong.status.code == wrong.status.STATUS_CODE_UNSET
    assert fault.status.code == fault.status.STATUS_CODE_ERROR
    assert attributes(fault)["error.type"] == "500"
    assert missing.name == "GET"


def test_health_and_metrics_are_no_traces(collector):
    with traced(collector, ["ok"]) as server:
        for path in ("/health", "/ready", "/metrics", "/version"):
            server.http.get(path)
    assert collector.spans() == []


@pytest.mark.parametrize("listens", [True, False], ids=["never answers", "is not there"])
def test_a_collector_that_fails_affects_no_request(caplog, listens):
    with (
        caplog.at_level(logging.CRITICAL),
        socket.create_server(("127.0.0.1", 0)) as deaf,
    ):
        port = deaf.getsockname()[1]
        if not listens:
            deaf.close()
        with testing.scripted_server([["ok"]], otlp_endpoint=f"http://127.0.0.1:{port}") as server:
            for _ in range(20):
                assert server.chat().status_code == 200


@pytest.mark.parametrize(
    "name", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"]
)
def test_the_standard_variables_are_enough(collector, monkeypatch, name):
    path = "/v1/traces" if "TRACES" in name else ""
    monkeypatch.setenv(name, collector.url + path)
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    with testing.scripted_server([["ok"]]) as server:
        server.chat()
    assert collector.paths == {"/v1/traces"}
    assert len(collector.servers()) == 1
    (resource, *_) = collector.resources()
    assert attributes(resource.resource)["service.name"] == "mine"


@pytest.mark.parametrize(
    ("more", "warning"),
    [
        ({"OTEL_SDK_DISABLED": "true"}, ""),
        ({"OTEL_TRACES_EXPORTER": "none"}, "OTEL_TRACES_EXPORTER is none"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "only http/protobuf"),
    ],
)
def test_variables_that_say_otherwise(caplog, more, warning):
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", **more}
    with caplog.at_level(logging.WARNING):
        assert tracing.open_tracing(None, environment) is tracing.NO_TRACING
    assert warning in caplog.text


def test_a_warning_comes_once_a_while():
    times = iter((0.0, 5.0, 59.0, 60.0, 61.0, 130.0))
    seldom = RateLimitFilter(60.0, clock=lambda: next(times))
    record = logging.makeLogRecord({"msg": "it failed"})
    passed = [seldom.filter(record) for _ in range(6)]
    assert passed == [True, False, False, True, False, True]


def test_off_unless_asked_for():
    assert tracing.open_tracing(None, {}) is tracing.NO_TRACING


def test_what_can_not_be_is_reported_before_a_model_is_loaded(monkeypatch):
    with pytest.raises(InvalidParameterError, match="URL"):
        ServerConfig(otlp_endpoint="collector:4317")
    monkeypatch.setattr(otlp_endpoint, "_is_installed", lambda: False)
    with pytest.raises(InvalidParameterError, match=r"ramet\[otel\]"):
        ServerConfig(otlp_endpoint="http://127.0.0.1:4318")


def test_a_call_of_a_program_names_it(collector):
    with traced(collector, Script(["ok"])) as server:
        server.chat(ramet={"program_id": "run-1", "node_id": "n3"})
    found = attributes(collector.servers()[0])
    assert (found["ramet.program_id"], found["ramet.node_id"]) == ("run-1", "n3")

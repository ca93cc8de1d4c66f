"""What a trace records, and the forms it is written in."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ramet.lang import NodeFailedError, State, Trace, UsageError, choice, program, replay, tool
from ramet.lang.trace.chrome import phases


@tool
def double(n: int) -> int:
    """Doubles."""
    return 2 * n


@program
def work(s: State, name: str) -> None:
    s += f"<{name}> "
    branches = s.fork(2)
    values = [branch.gen("n", int) for branch in branches]
    s += f"{s.call(double, n=values[0])} "
    s.select("c", ["<script>", "b"])


def test_every_call_is_recorded_with_its_times(scripted_engine) -> None:
    run = work.run("x", backend=scripted_engine(), seed=1)
    trace = run.trace
    assert [record.kind for record in trace.calls] == ["gen", "gen", "tool", "select"]
    assert trace.num_calls == 3
    for record in trace.calls:
        assert record.error is None
        assert record.added_s <= record.sent_s <= record.finished_s <= trace.wall_s
        spans = phases(record)
        assert spans[0][1] == record.sent_s
        assert all(begin <= end for _, begin, end in spans)
    tool_call, select = trace.calls[2], trace.calls[3]
    assert trace.calls[0].finished_s <= tool_call.sent_s
    assert tool_call.finished_s <= select.sent_s
    assert trace.usage.prompt_tokens == sum(c.usage.prompt_tokens for c in trace.calls)
    assert trace.arguments == {"name": "x"}


def test_notebooks_show_graphs_traces_and_runs(scripted) -> None:
    run = work.run("x", backend=scripted({"n": ["7", "8"], "c": "b"}))
    assert "&lt;x&gt;" in run.graph._repr_html_()
    assert run.trace._repr_html_().startswith("<iframe srcdoc=")
    assert repr(run) == "<run of work: 3 calls, done>"


def test_failures_are_recorded(scripted) -> None:
    run = work.start("x", backend=scripted({"n": ["7", ValueError("no")], "c": "b"}))
    with pytest.raises(NodeFailedError):
        run.wait()
    errors = [record.error for record in run.trace.calls]
    assert errors[1] == "no"
    assert errors[2] is None


def test_forms_of_a_trace(scripted, tmp_path: Path) -> None:
    run = work.run("x", backend=scripted({"n": ["7", "8"], "c": "<script>"}), seed=3)
    trace = run.trace
    for name in ("t.html", "t.json", "t.ramet.json", "t.otlp.json"):
        trace.save(tmp_path / name)
    with pytest.raises(UsageError, match=r"\.json.* or \.html"):
        trace.save(tmp_path / "t.txt")

    assert Trace.from_json(json.loads((tmp_path / "t.ramet.json").read_text())) == trace
    with pytest.raises(UsageError, match="not a trace"):
        Trace.from_json({"program": 1})

    chrome = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    lanes = {e["args"]["name"] for e in chrome if e["ph"] == "M"}
    assert lanes == {"branch main", "branch 1.0", "branch 1.1"}
    assert all(e["dur"] >= 0 for e in chrome if e["ph"] == "X")
    assert {e["cat"] for e in chrome if e["ph"] == "X"} == {"gen", "tool", "select"}

    spans = json.loads((tmp_path / "t.otlp.json").read_text())["resourceSpans"][0]["scopeSpans"][0]
    root, *calls = spans["spans"]
    assert {span["parentSpanId"] for span in calls} == {root["spanId"]}
    assert all(re.fullmatch("[0-9a-f]{16}", span["spanId"]) for span in calls)
    assert len({span["spanId"] for span in spans["spans"]}) == 5

    page = (tmp_path / "t.html").read_text()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "http" not in page.replace('xmlns="http://www.w3.org/2000/svg"', "")  # it loads nothing


def test_a_replay_from_a_file_names_what_changed(scripted) -> None:
    run = work.run("x", backend=scripted({"n": ["7", "8"], "c": "b"}))
    trace = Trace.from_json(json.loads(json.dumps(run.trace.to_json())))
    same = replay(trace, work, backend=scripted({"n": ["7", "8"], "c": "b"}))
    assert same.is_same
    other = replay(trace, work, backend=scripted({"n": ["7", "9"], "c": "b"}))
    (difference,) = other.differences
    assert (difference.node_id, difference.before, difference.after) == ("1.1.0", "8", "9")


def test_a_replay_takes_a_file_and_says_what_is_wrong_with_one(scripted, tmp_path: Path) -> None:
    run = work.run("x", backend=scripted({"n": ["7", "8"], "c": "b"}))
    run.trace.save(tmp_path / "t.ramet.json")
    assert Trace.load(tmp_path / "t.ramet.json") == run.trace
    assert replay(tmp_path / "t.ramet.json", work, backend=scripted({"n": ["7", "8"], "c": "b"}))
    run.trace.save(tmp_path / "t.json")
    (tmp_path / "broken.ramet.json").write_text("{")
    for name in ("t.json", "broken.ramet.json", "none.ramet.json"):
        with pytest.raises(UsageError, match=name):
            Trace.load(tmp_path / name)


def test_a_diff_names_nodes_settings_and_costs(scripted) -> None:
    a, b = (
        work.run("x", backend=scripted({"n": ["7", n], "c": "b"}), seed=seed).trace
        for n, seed in (("8", 1), ("1234", 2))
    )
    found = a.diff(b)
    assert found
    assert not a.diff(a)
    assert str(a.diff(a)) == "the same texts"
    assert str(found) == (
        "seed: 1 -> 2\nn (node 1.1.0)\n  - '8'\n  + '1234'\noutput tokens: 2 -> 5"
    )


def attributes_of(span: dict[str, Any]) -> dict[str, Any]:
    """A span's attributes, out of their envelopes."""

    def plain(value: dict[str, Any]) -> Any:
        ((kind, content),) = value.items()
        if kind == "arrayValue":
            return [plain(item) for item in content["values"]]
        return int(content) if kind == "intValue" else content

    return {item["key"]: plain(item["value"]) for item in span["attributes"]}


def test_spans_follow_the_conventions_for_generative_ai(scripted_engine) -> None:
    @program
    def chat(s: State) -> None:
        s.user("n?")
        n = s.gen("n", choice("1", "2"), max_tokens=4, temperature=0.5, stop=["x"])
        s.user(f"{s.call(double, n=n)}")
        s.gen("m", max_tokens=4)

    trace = chat.run(backend=scripted_engine(), seed=1).trace
    (scope,) = trace.otlp()["resourceSpans"][0]["scopeSpans"]
    root, n, tool_span, m = scope["spans"]
    assert root["name"] == "invoke_workflow chat"
    assert attributes_of(root)["gen_ai.workflow.name"] == "chat"
    assert "parentSpanId" not in root
    assert (n["name"], n["kind"]) == ("chat m", 3)  # the model is called m
    said = attributes_of(n)
    assert said["gen_ai.operation.name"] == "chat"
    assert said["gen_ai.provider.name"] == "ramet"
    assert said["gen_ai.request.model"] == "m"
    assert said["gen_ai.request.max_tokens"] == 4
    assert said["gen_ai.request.temperature"] == 0.5
    assert said["gen_ai.request.stop_sequences"] == ["x"]
    assert said["gen_ai.response.finish_reasons"] == [trace.calls[0].finish_reason]
    assert said["gen_ai.usage.input_tokens"] == trace.calls[0].usage.prompt_tokens
    assert said["gen_ai.usage.output_tokens"] == trace.calls[0].usage.completion_tokens
    assert attributes_of(m)["gen_ai.usage.cache_read.input_tokens"] > 0
    assert (tool_span["name"], tool_span["kind"]) == ("execute_tool double", 1)
    assert attributes_of(tool_span)["gen_ai.tool.name"] == "double"
    assert not any(span["status"] for span in scope["spans"])


def test_a_span_of_what_failed_says_of_what_kind_and_how(scripted) -> None:
    run = work.start("x", backend=scripted({"n": ["7", ValueError("no")], "c": "b"}))
    with pytest.raises(NodeFailedError):
        run.wait()
    (scope,) = run.trace.otlp()["resourceSpans"][0]["scopeSpans"]
    root, _, failed, *_ = scope["spans"]
    assert failed["status"] == {"code": 2, "message": "no"}
    assert attributes_of(failed)["error.type"] == "ValueError"
    assert attributes_of(failed)["gen_ai.operation.name"] == "text_completion"
    assert root["status"]["code"] == 2

"""``POST /v1/programs``: a graph runs on the server as its program would, under the same limits."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic_core import to_jsonable_python

from ramet.lang import State, program, tool
from ramet.lang.serving import PROGRAMS
from ramet.runtime.testing.scripted_model import Script

EXAMPLES = Path(__file__).parents[3] / "examples"
ENDLESS = Script(["word "], repeat=True)

STATIC = {
    "branch_solve_merge": ("judge", ["an essay"]),
    "few_shot_classification": ("classify", ["What a concert!"]),
    "json_extraction": ("extract", ["Ada was born in 1815."]),
    "multi_turn_chat": ("chat", [["Who?", "Where?", "Why?"]]),
}
"""Examples whose graphs are known without a model: a program of each, and its arguments."""


def load(example: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"example_{example}", EXAMPLES / f"{example}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where pydantic looks for the annotations' names
    spec.loader.exec_module(module)
    return module


def graph(*nodes: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"name": "g", "nodes": list(nodes), **fields}


def text(node_id: str, parent: str | None = None, *parts: Any) -> dict[str, Any]:
    return {"kind": "text", "id": node_id, "parent": parent, "parts": list(parts) or ["hello "]}


def gen(node_id: str, parent: str | None, name: str = "", **fields: Any) -> dict[str, Any]:
    params = {"max_tokens": 8, **fields.pop("params", {})}
    return {"kind": "gen", "id": node_id, "parent": parent, "name": name or node_id,
            "params": params, **fields}  # fmt: skip


def fan(num_branches: int, **fields: Any) -> dict[str, Any]:
    branches = [gen(f"f.{i}.0", "f", "x", **fields) for i in range(num_branches)]
    fork = {"kind": "fork", "id": "f", "parent": "0", "num_branches": num_branches}
    return graph(text("0"), fork, *branches)


def start(serve, *scripts, **options):
    return serve(*scripts, extensions=(PROGRAMS,), **options)


def post(server, data, headers=None, timeout=60, **fields):
    body = {"graph": data, **fields}
    return server.http.post("/v1/programs", json=body, headers=headers, timeout=timeout)


def events_of(answer) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = []
    for block in answer.text.strip().split("\n\n"):
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert event["type"] == name.removeprefix("event: ")
        events.append(event)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[0]["type"] == "program.created"
    return events


@pytest.mark.parametrize("example", STATIC)
def test_an_examples_graph_gives_what_its_program_gives(serve, example):
    server = start(serve)
    name, arguments = STATIC[example]
    each = getattr(load(example), name).using(seed=0)
    direct = each.run(*arguments, backend=server.engine)
    data = each.graph(*arguments).to_json()
    whole = post(server, data).json()
    assert whole["object"] == "program"
    assert whole["program"] == name
    for variable, value in whole["values"].items():
        expected = to_jsonable_python(direct.values[variable])
        assert value == expected, variable
    events = events_of(post(server, data, stream=True))
    assert events[-1]["type"] == "program.completed"
    assert events[-1]["values"] == whole["values"]
    for done in (event for event in events if event["type"] == "value.done"):
        deltas = [
            event["delta"]
            for event in events
            if event["type"] == "value.delta" and event["node"] == done["node"]
        ]
        if isinstance(done["value"], str):
            assert "".join(deltas) == done["value"]
        else:
            assert json.loads("".join(deltas)) == done["value"]
    calls = [event for event in events if event["type"] == "value.done" and "usage" in event]
    usage = events[-1]["usage"]
    assert usage["num_calls"] == len(calls) == events[0]["num_calls"]
    for count in ("prompt_tokens", "completion_tokens"):
        assert usage[count] == sum(call["usage"][count] for call in calls)


def test_values_have_their_types_and_are_formatted_as_such(serve):
    server = start(serve, Script(["fine"], when="[0007]"), ["7"])

    @program
    def count(s: State) -> None:
        s.user("How many?")
        number = s.gen("number", int)
        s.user(f"[{number:04d}]")
        s.gen("end")

    answer = post(server, count.graph().to_json()).json()
    assert answer["values"] == {"number": 7, "end": "fine"}


BAD = {
    "cycle": (graph(gen("a", "b"), gen("b", "a")), "graph.nodes[", "cycle"),
    "reference": (graph(text("t", None, {"node_id": "no"}), gen("a", "t")), "graph.nodes[0]", "no"),
    "no value": (graph(text("t"), text("u", "t", {"node_id": "t"}), gen("a", "u")),
                 "graph.nodes[1]", "no value"),
    "field": (graph({**gen("a", None), "nam": "x"}), "graph.nodes[0].nam", "did you mean 'name'"),
    "parameter": (graph(gen("a", None, params={"max_token": 3})),
                  "graph.nodes[0].params.max_token", "did you mean 'max_tokens'"),
    "value": (graph(gen("a", None, params={"top_p": 7})), "graph.nodes[0].params.top_p", "top_p"),
    "type": (graph(gen("a", None, params={"max_tokens": "3"})),
             "graph.nodes[0].params.max_tokens", "an integer"),
    "kind": (graph({"kind": "loop", "id": "a"}), "graph.nodes[0].kind", "is none of"),
    "top": (graph(gen("a", None), edges=[]), "graph.edges", "no field"),
    "nodes": ({"name": "g"}, "graph.nodes", "needs 'nodes'"),
    "nothing": (graph(text("t")), "graph.nodes", "no call"),
    "twice": (graph(gen("a", None), gen("a", None)), "graph.nodes[1]", "two nodes"),
    "name": (graph(gen("a", None, "x"), gen("b", "a", "x")), "graph.nodes[1]", "both set"),
    "turn": (graph({**text("t"), "role": "user"}, {**gen("a", "t"), "role": "assistant"}),
             "graph.nodes[1]", "two roles"),
    "speaker": (graph({**gen("a", None), "role": "user"}), "graph.nodes[0]", "assistant"),
    "constraint": (graph(gen("a", None, constraint={"kind": "regex", "patern": "a"})),
                   "graph.nodes[0].constraint.patern", "no field"),
    "regex": (graph(text("t"), gen("a", "t", constraint={"kind": "regex", "pattern": "(["})),
              "graph.nodes[1].constraint", "node 'a'"),
    "schema": (
        graph(gen("a", None, constraint={
            "kind": "json_schema",
            "schema": {"type": "object", "properties": {"n": {"type": "string", "pattern": "(["}}},
        })),
        "graph.nodes[0].constraint.schema.properties.n.pattern", "pattern"),
    "tool": (graph({"kind": "tool", "id": "t", "name": "t", "tool": "rm", "arguments": {}},
                   gen("a", None)), "graph.nodes[0]", "tool 'rm'"),
    "code": (graph({"kind": "join", "id": "j", "name": "j", "of": "agent"}, gen("a", None)),
             "graph.nodes[0]", "own code"),
    "open": (graph(gen("a", None), open_ends=[{"branch": "", "node_id": "a", "where": "p.py:1"}]),
             "graph.open_ends", "reads"),
    "many": (graph(*[text(str(i), str(i - 1) if i else None) for i in range(65)], gen("a", "0")),
             "graph.nodes", "limit of 64"),
    "scoring": (graph(gen("a", None, params={"prompt_logprobs": 1})),
                "graph.nodes[0].params.prompt_logprobs", "support"),
    "choices": (graph({"kind": "select", "id": "s", "name": "s", "choices": [["a"]] * 200}),
                "graph.nodes[0].choices", "limit of 128"),
}  # fmt: skip


@pytest.fixture(scope="module")
def shared():
    from ramet.runtime.testing import server as testing

    with testing.scripted_server([["ok"]], extensions=(PROGRAMS,), max_program_nodes=64) as server:
        yield server


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", BAD)
def test_a_bad_graph_is_named_by_its_path_and_runs_nothing(shared, kind, stream):
    data, param, message = BAD[kind]
    before = shared.engine.stats().num_steps
    answer = post(shared, data, stream=stream)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["param"].startswith(param), error
    assert message in error["message"]
    assert shared.engine.stats().num_steps == before


def test_a_body_is_checked_like_any_other(shared):
    assert post(shared, graph(gen("a", None)), model="other").status_code == 404
    error = post(shared, graph(gen("a", None)), sed=3).json()["error"]
    assert (error["code"], error["param"]) == ("unknown_parameter", "sed")
    assert "/v1/programs" in shared.http.get("/openapi.json").json()["paths"]


def test_a_failed_node_is_named_and_the_other_values_are_kept(serve):
    server = start(serve, ["fine"])
    data = graph(
        text("0"),
        gen("1", "0", "good"),
        gen("2", "1", "bad", params={"max_tokens": 9000}),
        text("3", "2"),
        gen("4", "3", "never"),
    )
    answer = post(server, data)
    assert answer.status_code == 400
    body = answer.json()
    assert body["values"] == {"good": "fine"}
    assert body["error"]["code"] == "context_length_exceeded"
    assert (body["error"]["param"], body["error"]["node"]) == ("graph.nodes[2]", "2")
    events = events_of(post(server, data, stream=True))
    failed = {event["name"]: event["error"] for event in events if event["type"] == "node.failed"}
    assert failed["bad"]["code"] == "context_length_exceeded"
    assert failed["never"]["code"] == "dependency_failed"
    assert events[-1]["type"] == "program.failed"
    assert events[-1]["values"] == {"good": "fine"}


def test_a_value_that_is_cut_short_is_the_callers_fault(serve):
    server = start(serve, ENDLESS)
    schema = {"kind": "json_schema", "schema": {"type": "string", "minLength": 50}}
    data = graph(gen("a", "t", "v", constraint=schema, returns="Name", complete=False), text("t"))
    answer = post(server, data)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "output_truncated"


def test_a_value_that_can_not_be_complete_is_refused(serve):
    server = start(serve, ENDLESS)
    schema = {"kind": "json_schema", "schema": {"type": "string", "minLength": 50}}
    answer = post(server, graph(gen("a", "t", "v", constraint=schema), text("t")))
    assert answer.status_code == 400
    assert "the shortest valid output takes" in answer.json()["error"]["message"]


def test_a_client_that_leaves_takes_the_program_with_it(serve, wait_until):
    server = start(serve, ENDLESS)
    body = {"graph": fan(6, params={"max_tokens": 4000}), "stream": True}
    with server.http.stream("POST", "/v1/programs", json=body) as answer:
        lines = answer.iter_lines()
        assert next(lines)
        wait_until(lambda: server.num_live() == 6)
    wait_until(lambda: server.num_live() == 0)
    with pytest.raises(httpx.ReadTimeout):
        post(server, fan(6, params={"max_tokens": 4000}), timeout=0.5)
    wait_until(lambda: server.num_live() == 0)
    wait_until(lambda: server.metric("ramet:programs_total", outcome="aborted") == 2)


def test_a_program_has_a_deadline(serve, wait_until):
    server = start(serve, ENDLESS, model_options={"step_delay_s": 0.01})
    data = graph(text("0"), gen("1", "0", "x", params={"max_tokens": 4000}))
    answer = post(server, data, deadline_s=0.2)
    assert answer.status_code == 504
    assert answer.json()["error"]["code"] == "deadline_exceeded"
    events = events_of(post(server, data, deadline_s=0.2, stream=True))
    assert events[-1]["error"]["code"] == "deadline_exceeded"
    wait_until(lambda: server.num_live() == 0)


def test_a_program_can_be_aborted_by_its_id(serve, wait_until):
    server = start(serve, ENDLESS)
    body = {"graph": fan(2, params={"max_tokens": 4000}), "stream": True, "request_id": "mine"}
    with server.http.stream("POST", "/v1/programs", json=body) as answer:
        wait_until(lambda: server.num_live() == 2)
        assert server.http.post("/v1/abort", json={"request_id": "mine"}).status_code == 200
        rest = answer.read().decode()
    assert json.loads(rest.strip().split("data: ")[-1])["error"]["code"] == "aborted"
    assert server.http.post("/v1/abort", json={"request_id": "mine"}).status_code == 404


def test_a_program_never_has_more_than_its_share_in_the_engine(serve):
    server = start(serve, max_choices=4, model_options={"step_delay_s": 0.002})
    most = 0
    body = {"graph": fan(24), "stream": True}
    with server.http.stream("POST", "/v1/programs", json=body) as answer:
        for _ in answer.iter_lines():
            most = max(most, server.num_live())
    assert 1 <= most <= 4


def test_the_engine_gets_the_programs_hints(serve):
    server = start(serve)
    seen = []
    submit = server.engine.submit

    def noting(request):
        seen.append(request)
        return submit(request)

    server.engine.submit = noting
    chained = graph(text("0"), gen("1", "0", "a"), text("2", "1"), gen("3", "2", "b"), name="two")
    assert post(server, chained, priority=3, cache_salt="s").status_code == 200
    (first, last) = (request for request in seen if request.params.max_tokens)
    assert first.hint.program_id == last.hint.program_id
    assert (first.hint.remaining_uses, last.hint.remaining_uses) == (1, 0)
    assert first.hint.steps_to_next_use == 0
    assert first.hint.critical_path_weight == 1.0
    assert {request.priority for request in (first, last)} == {3}
    assert {request.cache_salt for request in seen} == {"s"}


def test_a_program_counts_as_a_call_of_its_tenant(serve, tmp_path, wait_until):
    path = tmp_path / "keys.json"
    tenants = [
        {"name": "a", "keys": ["key-a"], "max_concurrent": 1},
        {"name": "b", "keys": ["key-b"], "tokens_per_minute": 30},
    ]
    path.write_text(json.dumps({"tenants": tenants}))
    server = start(serve, ENDLESS, api_keys_file=path)
    a, b = ({"authorization": f"Bearer key-{name}"} for name in "ab")
    data = graph(text("0"), gen("1", "0", "x"))
    assert post(server, data).status_code == 401
    body = {"graph": fan(2, params={"max_tokens": 4000}), "stream": True, "request_id": "mine"}
    with server.http.stream("POST", "/v1/programs", json=body, headers=a):
        wait_until(lambda: server.num_live() == 2)
        assert post(server, data, headers=a).status_code == 429
        taken = server.http.post("/v1/abort", json={"request_id": "mine"}, headers=b)
        assert taken.status_code == 404
    wait_until(lambda: server.num_live() == 0)
    assert post(server, fan(3), headers=b).status_code == 200
    late = post(server, data, headers=b)
    assert late.status_code == 429
    assert int(late.headers["retry-after"]) >= 1


def test_tools_run_where_the_program_runs(serve):
    @tool
    def now() -> str:
        """The time."""
        return "noon"

    @program
    def asks(s: State) -> None:
        s += f"It is {s.call(now)} and "
        s.gen("a")

    answer = post(start(serve), asks.graph().to_json())
    assert answer.status_code == 400
    assert "tool 'now'" in answer.json()["error"]["message"]


def test_a_calls_metadata_is_returned(serve):
    server = start(serve, ["fine"])
    data = graph(
        text("0"),
        gen("1", "0", "a", params={"logprobs": 1}),
        {"kind": "select", "id": "2", "parent": "1", "name": "b", "choices": [["x"], ["y"]]},
    )
    calls = post(server, data).json()["calls"]
    assert [(call["name"], call["finish_reason"]) for call in calls] == [
        ("a", "stop"),
        ("b", "stop"),
    ]
    entries = calls[0]["logprobs"]
    assert bytes(entries[0]["bytes"]) == b"fine"
    assert len(entries[0]["top_logprobs"]) == 1
    assert set(calls[1]["scores"]) == {"x", "y"}
    events = events_of(post(server, data, stream=True))
    told = [event for event in events if event["type"] == "value.done"]
    assert [event["usage"]["completion_tokens"] for event in told] == [
        call["usage"]["completion_tokens"] for call in calls
    ]
    assert told[0]["logprobs"] == entries


def refs(node_id: str, *needed: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "join", "id": node_id, "name": node_id, "of": "text", "parts": list(needed)}


@pytest.mark.parametrize("spec", [">2000000000", ".2000000000", "d", "ü"])
def test_a_value_that_cant_be_formatted_as_asked_fails_its_node(serve, spec):
    server = start(serve)
    joined = refs("2", {"node_id": "1", "spec": spec})
    answer = post(server, graph(text("0"), gen("1", "0"), joined))
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "invalid_format"), error
    assert error["param"] == "graph.nodes[2]"
    assert "1" in answer.json()["values"]


@pytest.mark.parametrize("of", ["text", "list"])
def test_joins_of_joins_make_no_text_without_end(serve, of):
    server = start(serve, max_body_bytes=2**18)
    joins = []
    for index in range(60):
        last = "1" if not index else f"j{index - 1}"
        joins.append(
            refs(f"j{index}", {"node_id": last}, {"node_id": last})
            if of == "text"
            else {"kind": "join", "id": f"j{index}", "name": f"j{index}", "inputs": [last, last]}
        )
    answer = post(server, graph(text("0"), gen("1", "0"), *joins))
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "text_too_long"), error


def test_a_choice_that_doesnt_fit_the_context_is_the_callers_fault(serve):
    server = start(serve)
    select = {"kind": "select", "id": "1", "parent": "0", "name": "c",
              "choices": [["word " * 30_000], ["x " * 30_000]]}  # fmt: skip
    answer = post(server, graph(text("0"), select))
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "context_length_exceeded"), error
    assert error["param"] == "graph.nodes[1]"


def test_an_integer_of_any_size_is_a_value(serve):
    server = start(serve, Script(["9" * 40]))
    schema = {"type": "integer", "maximum": 10**40}
    node = gen("1", "0", constraint={"kind": "json_schema", "schema": schema}, returns="number",
               params={"max_tokens": 60})  # fmt: skip
    assert post(server, graph(text("0"), node)).json()["values"] == {"1": int("9" * 40)}
    streamed = events_of(post(server, graph(text("0"), node), stream=True))
    assert streamed[-1]["values"] == {"1": int("9" * 40)}

"""A graph that travelled as JSON runs as its program would."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from ramet.lang import (
    GraphError,
    NodeFailedError,
    RequestGraph,
    State,
    assistant,
    gen,
    program,
    run_graph,
    select,
    tool,
)


@tool
def double(n: int) -> int:
    """Doubles."""
    return 2 * n


@program
def work(s: State, topic: str) -> None:
    s.system("S")
    branches = s.fork(2)
    for index, branch in enumerate(branches):
        branch.user(f"{topic} {index}")
        branch.gen("tip", regex="[0-9]+")
    branches.join()
    s.user(f"tips: {s['tip']}")
    s += assistant("so ", select("best", ["a", "b"]), " ", gen("why"))
    s.user(f"{s.call(double, n=branches['tip'][0])}")
    s.gen("end")


def travelled(graph: RequestGraph) -> RequestGraph:
    data = json.loads(graph.json())
    random.Random(3).shuffle(data["nodes"])
    return RequestGraph.from_json(data)


def script(scripted: Any) -> Any:
    return scripted(
        {
            "tip": lambda call: call.prompt.messages[-1].content[-1],
            "best": "b",
            "why": "because",
            "end": lambda call: call.prompt.messages[-1].content,
        }
    )


def test_a_graph_from_json_runs_as_its_program(scripted) -> None:
    backend, direct = script(scripted), script(scripted)
    run = run_graph(travelled(work.graph("x")), backend=backend, tools={"double": double})
    assert run.result["tip"] == ["0", "1"]
    assert run.result["best"] == "b"
    assert run.result["end"] == "0"
    work.run("x", backend=direct)

    def prompts(b: Any) -> dict[str, Any]:
        return {c.node_id: c.prompt for c in b.calls}

    assert prompts(backend) == prompts(direct)


def test_a_failed_node_is_named(scripted) -> None:
    graph = travelled(work.graph("x"))
    run = run_graph(graph, backend=scripted({"tip": ValueError("no")}), tools={"double": double})
    with pytest.raises(NodeFailedError, match="tip"):
        run.wait()


def test_what_only_a_program_can_do_is_refused(scripted) -> None:
    @program
    def spawns(s: State) -> None:
        s.spawn(lambda branch: branch.gen("a"))

    @program
    def looks(s: State) -> None:
        if s.gen("a") == "x":
            s.gen("b")

    for graph, match in (
        (spawns.graph(), "own code"),
        (looks.graph(), "reads"),
        (work.graph("x"), "tool 'double'"),
    ):
        with pytest.raises(GraphError, match=match):
            run_graph(graph, backend=scripted())

"""The graph of a program: what it holds with and without a model, and the laws of graphs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from ramet.lang import (
    GraphError,
    RequestGraph,
    State,
    assistant,
    gen,
    program,
    select,
    tool,
    user,
)
from ramet.lang.graph.nodes import Fork, Gen, Join, Node, Text, ToolCall
from ramet.lang.graph.references import Ref


class Box(BaseModel):
    size: int


@tool
def measure(what: str, how: dict[str, Any] | None = None) -> int:
    """Measures."""
    return len(what)


@program
def everything(s: State, topic: str) -> Any:
    s.system("S")
    s += user(f"about {topic} <b>")
    branches = s.fork(2)
    for index, branch in enumerate(branches):
        branch += assistant(f"{index}: " + gen("x", stop="\n"))
    branches.join()
    s.user(f"all: {s['x']} {branches['x'][0]:>3}")
    box = s.gen("box", Box)
    s += assistant("so ", select("s", ["a", f"{branches['x'][0]}"]))
    size = s.call(measure, what=f"a {box}", how={"$deep": [box, 1]})
    s.user(f"{size}")
    s.gen("end", regex="[a-z]+")
    return s.spawn(lambda branch: branch.gen("late"))


def test_a_graph_without_a_model_is_the_graph_with_one(scripted) -> None:
    traced = everything.graph("cats")
    assert traced.is_complete
    backend = scripted(
        {"x": ["p", "q"], "box": {"size": 2}, "s": "a", "end": "end", "late": "late"}
    )
    run = everything.run("cats", backend=backend, seed=0)
    assert [(node.id, node.kind, node.parent) for node in traced] == [
        (node.id, node.kind, node.parent) for node in run.graph
    ]
    assert [call.node_id for call in run.trace.calls if call.kind == "gen"] == [
        node.id for node in traced.calls() if node.kind == "gen"
    ]


def test_a_graph_says_where_it_depends_on_values() -> None:
    @program
    def branching(s: State) -> None:
        s.gen("a")
        if s["a"] == "yes":
            s.gen("b")
        side = s.copy()
        side.gen("never")

    graph = branching.graph()
    assert not graph.is_complete
    assert [node.label for node in graph] == ["a"]
    (end,) = graph.open_ends
    assert end.node_id == "0"
    assert end.where.startswith("test_graph.py:")
    assert f"{end.where} reads 'a'" in graph.tree()


def test_an_open_branch_does_not_hide_the_others() -> None:
    @program
    async def branching(s: State) -> None:
        async def looks(branch: State) -> None:
            await branch.gen("a")
            branch.gen("hidden")

        s.spawn(looks)
        s.spawn(looks)
        s.gen("c")

    graph = branching.graph()
    assert [node.label for node in graph.calls()] == ["c", "a", "a"]
    assert len(graph.open_ends) == 2


def test_tracing_runs_no_tool() -> None:
    ran: list[int] = []

    @tool
    def effect() -> int:
        """Has one."""
        ran.append(1)
        return 1

    @program
    def calls(s: State) -> None:
        s += f"{s.call(effect)}"
        s.gen("a")

    assert len(calls.graph()) == 3
    assert ran == []


def test_views_name_every_node() -> None:
    graph = everything.graph("cats")
    tree, mermaid = graph.tree(), graph.mermaid()
    for line in ("fork 2", "gen x", "gen box: Box (json_schema)", "select s of 2  [x]"):
        assert line in tree
    assert tree.splitlines()[0] == "everything"
    assert mermaid.startswith("flowchart TD")
    for node in graph:
        assert f"n{node.id.replace('.', '_')}" in mermaid
    assert "<b>" not in mermaid


def test_json_and_back() -> None:
    graph = everything.graph("cats")
    data = json.loads(graph.json())
    again = RequestGraph.from_json(data)
    assert again.to_json() == data
    assert [type(node) for node in again] == [type(node) for node in graph]
    call = next(node for node in again if isinstance(node, ToolCall))
    assert {ref.node_id for ref in call.refs()} == {
        node.id for node in again if node.label == "box"
    }
    assert [again.needs(node.id) for node in again] == [graph.needs(node.id) for node in graph]


def gen_node(id: str, parent: str | None = None, name: str = "") -> Gen:
    return Gen(id=id, parent=parent, name=name)


@pytest.mark.parametrize(
    ("nodes", "match"),
    [
        ([Text(id="0", parts=(Ref("1"),)), gen_node("1", "0")], "cycle"),
        ([gen_node("0", "0")], "cycle"),
        ([gen_node("0", "1"), gen_node("1", "0")], "cycle"),
        ([gen_node("0", "9")], "no node '9'"),
        ([Text(id="0", parts=(Ref("9"),))], "no node '9'"),
        ([gen_node("0"), gen_node("0")], "two nodes"),
        ([gen_node("0"), gen_node("1", "0"), gen_node("2", "0")], "not a fork"),
        ([gen_node("0", None, "a"), gen_node("1", "0", "a")], "both set"),
    ],
)
def test_a_graph_that_can_not_be_executed_is_refused(nodes: list[Node], match: str) -> None:
    with pytest.raises(GraphError, match=match):
        RequestGraph.from_nodes("g", nodes)


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {"nodes": 3},
        {"nodes": [3]},
        {"nodes": [{"kind": "other"}]},
        {"nodes": [{"kind": "gen"}]},
        {"nodes": [{"kind": "gen", "id": "0", "name": "a", "more": 1}]},
        {"nodes": [{"kind": "gen", "id": "0", "name": "a", "params": {"top_p": 9}}]},
        {"nodes": [{"kind": "fork", "id": "0", "num_branches": "many"}]},
        {"nodes": [], "open_ends": [{"what": 1}]},
    ],
)
def test_other_json_is_refused(data: Any) -> None:
    with pytest.raises(GraphError):
        RequestGraph.from_json(data)


@st.composite
def _graphs(draw: st.DrawFn) -> list[Node]:
    """Nodes of a sound graph: states that fork, texts that refer to earlier calls."""
    nodes: list[Node] = []
    tails: dict[str, tuple[int, str | None]] = {"": (0, None)}
    for step in range(draw(st.integers(1, 12))):
        branch = draw(st.sampled_from(sorted(tails)))
        number, parent = tails[branch]
        node_id = f"{branch}.{number}" if branch else str(number)
        calls = [node.id for node in nodes if isinstance(node, Gen)]
        kind = draw(st.sampled_from(["gen", "text", "fork", "join"]))
        if kind == "gen":
            nodes.append(Gen(id=node_id, parent=parent, name=f"v{step}"))
        elif kind == "text":
            refs = draw(st.lists(st.sampled_from(calls), max_size=2)) if calls else []
            nodes.append(Text(id=node_id, parent=parent, parts=("t", *map(Ref, refs))))
        elif kind == "join":
            inputs = tuple(draw(st.lists(st.sampled_from(calls), max_size=2))) if calls else ()
            nodes.append(Join(id=node_id, parent=parent, name=f"j{step}", inputs=inputs))
        else:
            nodes.append(Fork(id=node_id, parent=parent, num_branches=2))
            tails |= {f"{node_id}.{index}": (0, node_id) for index in range(2)}
        tails[branch] = (number + 1, node_id)
    return nodes


@given(_graphs(), st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_laws_of_graphs(nodes: list[Node], random: Any) -> None:
    shuffled = list(nodes)
    random.shuffle(shuffled)
    graph = RequestGraph.from_nodes("g", shuffled)  # in any order
    order = {node.id: index for index, node in enumerate(nodes)}
    for node in graph:
        chain = graph.chain(node.id)
        assert chain[-1] is node
        assert [later.parent for later in chain] == [None, *(n.id for n in chain[:-1])]
        needs = graph.needs(node.id)
        assert all(order[needed] < order[node.id] for needed in needs)
        if isinstance(node, Gen):
            # what it waits for, and what those wait for, is all that its prompt is made of
            reached: set[str] = set()
            stack = list(needs)
            while stack:
                needed = stack.pop()
                if needed not in reached:
                    reached.add(needed)
                    stack.extend(graph.needs(needed))
            for earlier in chain[:-1]:
                if isinstance(earlier, Gen):
                    assert earlier.id in reached
                if isinstance(earlier, Text):
                    assert {ref.node_id for ref in earlier.refs()} <= reached
    assert RequestGraph.from_json(json.loads(graph.json())).to_json() == graph.to_json()
    assert len(graph.tree().splitlines()) >= len(nodes)

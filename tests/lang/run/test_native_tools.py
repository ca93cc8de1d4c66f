"""Promised: agent loops on models whose chat template prints tools use the model's own format."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from pydantic import BaseModel

from ramet.lang import AgentLimits, RecordedBackend, State, Trace, UnsupportedError, program, tool
from ramet.lang.backends.base import CallPlace
from ramet.lang.graph.from_json import read_graph
from ramet.lang.graph.node_graph import NodeGraph
from ramet.lang.graph.nodes import Gen
from ramet.lang.graph.to_json import graph_to_json
from ramet.runtime.api.agent_turn import AgentTurn
from ramet.runtime.engine import EngineConfig
from ramet.runtime.testing.scripted_model import Script

AS_SCRIPTED = EngineConfig(forced_tokens=False)
"""So that a script's own tokens stay."""

calls: list[tuple[str, Any]] = []


@tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    calls.append(("add", (a, b)))
    return a + b


@tool
def fails(why: str) -> str:
    """Always fails."""
    raise ValueError(why)


class City(BaseModel):
    name: str


def _call(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


@program
def ask(s: State, **options: Any) -> Any:
    s.system("You help.")
    s.user("What is 1 + 2?")
    return s.tools([add, fails], **options).value


def test_tools_are_printed_by_the_template_and_called_in_the_models_format(scripted_engine) -> None:
    engine = scripted_engine(
        Script(["It is 3."], when="<|im_start|>tool"),
        Script(["I add. ", _call("add", '{"a": 1, "b": 2}'), "\n", _call("fails", '{"why": "x"}')]),
        config=AS_SCRIPTED,
    )
    run = ask.run(backend=engine)
    assert run.result == "It is 3."
    assert [m["role"] for m in run.messages()] == [
        *("system", "user", "assistant", "tool", "tool", "assistant"),
    ]
    assert [m["content"] for m in run.messages()][2:] == [
        '{"answer": "I add.", "tool_calls": [{"name": "add", "arguments": {"a": 1, "b": 2}}, '
        '{"name": "fails", "arguments": {"why": "x"}}]}',
        "3",
        "error: ValueError: x",
        '{"answer": "It is 3."}',
    ]
    again = ask.run(backend=RecordedBackend(Trace.from_json(run.trace.to_json())))
    assert again.result == run.result
    assert not run.trace.diff(again.trace)


def test_the_head_of_the_conversation_is_computed_once(scripted_engine) -> None:
    engine = scripted_engine(
        Script(["3."], when="<|im_start|>tool"),
        Script([_call("add", '{"a": 1, "b": 2}')]),
        config=AS_SCRIPTED,
    )
    first, second = (ask.run(backend=engine) for _ in range(2))
    turns = [call.usage for call in first.trace.calls if call.kind == "gen"]
    for earlier, later in itertools.pairwise(turns):
        assert later.cached_tokens >= earlier.prompt_tokens - 16
    usage = next(call.usage for call in second.trace.calls if call.kind == "gen")
    assert usage.cached_tokens >= usage.prompt_tokens - 16


@pytest.mark.parametrize("seed", range(4))
def test_whatever_the_model_writes_is_valid(scripted_engine, seed) -> None:
    """The model writes noise, which only the grammar makes calls and answers of."""
    engine = scripted_engine()
    limits = AgentLimits(max_turns=2, max_calls_a_turn=2)
    calls.clear()
    options = {"temperature": 1.5, "max_tokens": 200}
    run = ask.run(
        backend=engine, seed=seed, limits=limits, require_call=True, answer=City, **options
    )
    assert isinstance(run.result, City)
    requested = [event for event in run.trace.calls if event.kind == "tool"]
    assert 1 <= len(requested) <= 2
    assert all(type(a) is int and type(b) is int for _, (a, b) in calls)


def test_a_scripted_loop_can_run_as_with_such_a_model(scripted) -> None:
    backend = scripted(
        {
            "answer.turn1": {"tool_calls": [{"name": "add", "arguments": {"a": 1, "b": 2}}]},
            "answer.turn2": {"answer": "3"},
        },
        writes_tool_calls=True,
    )
    assert ask.run(backend=backend).result == "3"
    first, second = backend.calls
    assert [message.role for message in first.prompt.messages] == ["system", "user"]
    assert [f["name"] for f in second.prompt.functions] == ["add", "fails"]
    assert first.agent_turn.max_calls == AgentLimits().max_calls_a_turn
    assert [message.role for message in second.prompt.messages][2:] == ["assistant", "tool"]
    assert second.prompt.messages[2].is_record


def test_tools_stay_in_view_of_later_calls(scripted_engine) -> None:
    engine = scripted_engine()

    @program
    def agent(s: State) -> None:
        s.user("?")
        s.tools([add], limits=AgentLimits(max_turns=1), max_tokens=5)
        s.user("And now?")
        s.gen("more", max_tokens=4)

    run = agent.run(backend=engine)
    usages = [call.usage for call in run.trace.calls if call.kind == "gen"]
    assert usages[1].cached_tokens >= usages[0].prompt_tokens


def test_a_graph_with_agent_turns_is_read_as_it_was_written(scripted) -> None:
    backend = scripted({"answer.turn1": {"answer": {"name": "x"}}}, writes_tool_calls=True)
    run = ask.run(backend=backend, answer=City)
    data = graph_to_json(run.graph)
    copy = NodeGraph()
    read_graph(data, copy)
    assert graph_to_json(copy) == data
    turns = [node.agent_turn for node in copy if isinstance(node, Gen)]
    assert turns[0].answer is not None
    assert [function["name"] for function in turns[0].functions] == ["add", "fails"]


def test_a_backend_without_calls_of_its_own_refuses_such_a_node(served) -> None:
    from ramet.lang import connect

    backend = connect(served())
    turn = AgentTurn(functions=(add.function_object(),), max_calls=1)
    node = Gen(id="0", name="x", role="assistant", agent_turn=turn)
    with pytest.raises(UnsupportedError, match="agent loop"):
        backend.check(node, CallPlace(is_chat=True, continues_turn=False))

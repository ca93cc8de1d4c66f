"""Tools and the loop in which a model calls them."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from ramet.lang import (
    AgentLimitError,
    AgentLimits,
    NodeFailedError,
    OutputTypeError,
    ScriptedBackend,
    State,
    Tool,
    ToolFailedError,
    UsageError,
    Value,
    program,
    tool,
)
from ramet.lang.graph.nodes import ToolCall
from ramet.lang.run.agent import action_type
from ramet.lang.run.events import NodeFailed
from ramet.lang.types.matching import match_text
from ramet.runtime.api.events import Finished


class Place(BaseModel):
    city: str
    country: str = "France"


@tool
def weather(place: Place, unit: Literal["c", "f"] = "c") -> dict[str, Any]:
    """The weather somewhere,
    as it is now.

    It is made up.

    Args:
        place: where.
        unit: of the temperature:
            Celsius or Fahrenheit.
    """
    return {"city": place.city, "temperature": 21, "unit": unit}


@tool(name="add", timeout_s=0.05)
async def plus(a: int, b: Annotated[int, Field(ge=0)] = 1) -> int:
    """Adds."""
    if a == 13:
        raise ValueError("unlucky")
    if a == 99:
        await asyncio.sleep(5)
    return a + b


def test_a_tools_schema_comes_from_hints_and_docstring() -> None:
    assert weather.name == "weather"
    assert weather.description == "The weather somewhere, as it is now."
    properties = weather.parameters["properties"]
    assert properties["place"]["description"] == "where."
    assert properties["unit"]["description"] == "of the temperature: Celsius or Fahrenheit."
    assert properties["unit"]["enum"] == ["c", "f"]
    assert weather.parameters["required"] == ["place"]
    assert weather.parameters["additionalProperties"] is False
    assert weather.mcp() == {
        "name": "weather",
        "description": weather.description,
        "inputSchema": weather.parameters,
    }


def test_a_tool_is_still_the_function() -> None:
    assert weather(Place(city="Nice"))["temperature"] == 21
    assert asyncio.run(plus(1, 2)) == 3


def test_invoke_validates_and_types_errors() -> None:
    assert asyncio.run(weather.invoke({"place": {"city": "Nice"}}))["city"] == "Nice"
    for arguments in ({}, {"place": {"city": 3}}, {"place": {"city": "x"}, "more": 1}):
        with pytest.raises(ToolFailedError, match="wrong arguments"):
            asyncio.run(weather.invoke(arguments))
    with pytest.raises(ToolFailedError, match="ValueError: unlucky"):
        asyncio.run(plus.invoke({"a": 13}))
    with pytest.raises(ToolFailedError, match=r"no result after 0\.05 s"):
        asyncio.run(plus.invoke({"a": 99}))


def test_functions_without_a_schema_are_refused() -> None:
    def untyped(a) -> None:  # type: ignore[no-untyped-def]
        pass

    def many(*values: int) -> None:
        pass

    def positional(a: int, /) -> None:
        pass

    def odd(a: object()) -> None:  # type: ignore[valid-type]
        pass

    for function in (untyped, many, positional):
        with pytest.raises(OutputTypeError):
            tool(function)


def test_a_tool_call_is_a_node_whose_arguments_may_be_values(scripted) -> None:
    backend = scripted({"n": "4", "done": "ok"})

    @program
    def calls(s: State) -> int:
        n = s.copy().gen("n", int)
        total = s.call(plus, a=n, b=2)
        where = s.call(weather, place={"city": f"city {n}"})
        s += f"{total} in {where['city']}"
        s.gen("done")
        return total.value

    run = calls.run(backend=backend)
    assert run.result == 6
    assert backend.calls[-1].prompt.text == "6 in city 4"
    assert run.graph.needs("1") == {"0.0.0"}


def test_a_failed_tool_call_fails_its_node(scripted) -> None:
    @program
    def calls(s: State) -> int:
        return s.call(plus, a=13).value

    with pytest.raises(NodeFailedError, match="unlucky") as caught:
        calls.run(backend=scripted())
    assert caught.value.node_name == "add"


def test_sync_tools_do_not_block_the_loop(scripted) -> None:
    @tool
    def slow(seconds: float) -> float:
        """Sleeps."""
        time.sleep(seconds)
        return seconds

    @program
    def both(s: State) -> list[float]:
        return [value.value for value in [s.call(slow, seconds=0.2) for _ in range(4)]]

    began = time.monotonic()
    assert both.run(backend=scripted()).result == [0.2] * 4
    assert time.monotonic() - began < 0.7


def call_of(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def test_the_loop_runs_tools_until_there_is_an_answer(scripted) -> None:
    backend = scripted(
        {
            "answer.turn1": {"tool_calls": [call_of("add", a=1, b=2), call_of("add", a=5)]},
            "answer.turn2": {"tool_calls": [call_of("weather", place={"city": "Nice"})]},
            "answer.turn3": {"answer": "3, 6 and 21"},
            "more": "bye",
        }
    )

    @program
    def agent(s: State) -> str:
        s.system("You help.")
        s.user("What?")
        answer = s.tools([plus, weather])
        s.user("Thanks.")
        s.gen("more")
        return answer.value

    run = agent.run(backend=backend)
    assert run.result == "3, 6 and 21"
    assert run["answer"] == "3, 6 and 21"
    turns = [(m["role"], m["content"]) for m in run.messages()]
    assert [role for role, _ in turns] == [
        *("system", "user", "assistant", "user", "assistant", "user"),
        *("assistant", "user", "assistant"),
    ]
    assert turns[1][1].startswith("What?\n\nYou can call these tools:\n- add: Adds.")
    assert turns[3][1] == "Tool results:\nadd: 3\nadd: 6"
    assert turns[5][1] == 'Tool results:\nweather: {"city":"Nice","temperature":21,"unit":"c"}'
    assert backend.calls[0].hint.tool == "add|weather"


def test_an_error_is_for_the_model_and_an_event_for_the_program(scripted) -> None:
    backend = scripted(
        {
            "answer.turn1": {"tool_calls": [call_of("add", a=13), call_of("add", a=99)]},
            "answer.turn2": {"answer": "sorry"},
        }
    )

    @program
    def agent(s: State) -> Any:
        s.user("?")
        return s.tools([plus])

    run = agent.run(backend=backend)
    assert run.result == "sorry"
    assert run.messages()[2]["content"] == (
        "Tool results:\nadd: error: ValueError: unlucky\nadd: error: no result after 0.05 s"
    )
    failed = [event for event in run.events if isinstance(event, NodeFailed)]
    assert [type(event.error) for event in failed] == [ToolFailedError, ToolFailedError]


def test_calls_of_one_turn_run_concurrently(scripted) -> None:
    running: list[int] = []
    peak: list[int] = []

    @tool
    async def wait(n: int) -> int:
        """Waits."""
        running.append(n)
        peak.append(len(running))
        await asyncio.sleep(0.02)
        running.remove(n)
        return n

    backend = scripted(
        {
            "answer.turn1": {"tool_calls": [call_of("wait", n=n) for n in range(3)]},
            "answer.turn2": {"answer": "ok"},
        }
    )

    @program
    def agent(s: State) -> Any:
        s.user("?")
        return s.tools([wait])

    agent.run(backend=backend)
    assert max(peak) == 3


def test_typed_answers_and_async_programs(scripted) -> None:
    backend = scripted({"place.turn1": {"answer": {"city": "Nice", "country": "France"}}})

    @program
    async def agent(s: State) -> Place:
        s.user("?")
        return await s.tools([plus], name="place", answer=Place)

    assert agent.run(backend=backend).result == Place(city="Nice")


def test_limits_of_turns_tokens_and_time(scripted) -> None:
    again = {"tool_calls": [call_of("add", a=1)]}

    def run(limits: AgentLimits, **script: Any) -> Any:
        @program
        def agent(s: State) -> Any:
            s.user("?")
            return s.tools([plus], limits=limits)

        return agent.run(backend=scripted(script, default=again))

    # the last turn can only answer: a call there breaks the constraint
    with pytest.raises(NodeFailedError, match="breaks its constraint"):
        run(AgentLimits(max_turns=2))
    assert run(AgentLimits(max_turns=2), **{"answer.turn2": {"answer": "x"}}).result == "x"
    for limits in (AgentLimits(max_tokens=10), AgentLimits(timeout_s=0.0)):
        with pytest.raises(NodeFailedError) as caught:
            run(limits)
        assert isinstance(caught.value.__cause__, AgentLimitError)
    with pytest.raises(UsageError):
        AgentLimits(max_turns=0)


def test_what_a_turn_may_be() -> None:
    both = action_type([plus, weather], None, max_calls=2, allows_answer=True).constraint
    must_call = action_type([plus], None, max_calls=1, allows_answer=False).constraint
    must_answer = action_type([plus], int, max_calls=0, allows_answer=True).constraint

    def allows(constraint: Any, value: Any) -> bool:
        return bool(match_text(constraint, json.dumps(value)))

    call = call_of("add", a=1, b=2)
    nice = call_of("weather", place={"city": "Nice"})
    assert allows(both, {"tool_calls": [call, nice]})
    assert allows(both, {"answer": "x"})
    assert not allows(both, {"tool_calls": []})
    assert not allows(both, {"tool_calls": [call, call, call]})
    assert not allows(both, {"tool_calls": [call_of("weather", place={"town": "Nice"})]})
    assert not allows(both, {"tool_calls": [call_of("add", a=1, b=-2)]})
    assert not allows(both, {"tool_calls": [call_of("rm", path="/")]})
    assert not allows(both, {"tool_calls": [call], "answer": "x"})
    assert allows(must_call, {"tool_calls": [call]})
    assert not allows(must_call, {"answer": "x"})
    assert allows(must_answer, {"answer": 3})
    assert not allows(must_answer, {"answer": "3"})


def test_agents_are_checked_when_they_are_made(scripted) -> None:
    def make(*tools: Any, **options: Any) -> None:
        @program
        def agent(s: State) -> Any:
            s.user("?")
            return s.tools(tools, **options)

        backend = scripted()
        try:
            agent.run(backend=backend)
        finally:
            assert backend.calls == []

    with pytest.raises(UsageError, match="at least one tool"):
        make()
    with pytest.raises(UsageError, match="one name"):
        make(plus, plus)
    with pytest.raises(OutputTypeError):
        make(plus, answer=object())


def test_what_a_tool_says_is_data(scripted) -> None:
    seen: list[str] = []

    @tool
    def echo() -> str:
        """Says what it likes."""
        return "</s>{x}" + "".join(seen)

    backend = scripted({"answer.turn1": {"tool_calls": [call_of("echo")]}}, default={"answer": "k"})

    @program
    def agent(s: State) -> Any:
        secret = s.copy().gen("secret", regex=".*")
        seen.append(f"{secret}")
        s.user("?")
        return s.tools([echo])

    backend._by_name["secret"] = "hidden"
    run = agent.run(backend=backend)
    assert "hidden" not in run.messages()[2]["content"]


SCHEMA = {
    "type": "object",
    "properties": {"city": {"$ref": "#/definitions/city"}, "days": {"type": "integer"}},
    "required": ["city"],
    "definitions": {"city": {"enum": ["Lisbon", "Rome"]}},
}


def test_a_tool_of_a_schema_is_called_as_the_schema_allows(scripted) -> None:
    seen: list[dict[str, Any]] = []

    def forecast(**arguments: Any) -> str:
        seen.append(arguments)
        return "sun"

    description = {"type": "function", "function": {"name": "forecast", "parameters": SCHEMA}}
    given = Tool.from_schema(description, forecast)
    assert given.mcp()["inputSchema"]["properties"] == SCHEMA["properties"]

    @program
    def travels(s: State) -> str:
        s.user("Where?")
        s.call(given, "Lisbon", days=2)
        return s.tools([given]).value

    call = {"tool_calls": [{"name": "forecast", "arguments": {"city": "Rome"}}]}
    backend = scripted({"answer.turn1": call, "answer.turn2": {"answer": "Rome"}})
    assert travels.run(backend=backend).result == "Rome"
    assert seen == [{"city": "Lisbon", "days": 2}, {"city": "Rome"}]

    wrong = {"tool_calls": [{"name": "forecast", "arguments": {"city": "Paris"}}]}
    with pytest.raises(NodeFailedError, match="breaks its constraint"):
        travels.run(backend=scripted({"answer.turn1": wrong}))

    @program
    def calls_wrongly(s: State) -> Value[str]:
        return s.call(given, "Paris")

    with pytest.raises(NodeFailedError, match="wrong arguments at byte 9"):
        calls_wrongly.run(backend=scripted())


@pytest.mark.parametrize("parameters", [{"type": "array"}, 3])
def test_parameters_are_a_schema_of_an_object(parameters: Any) -> None:
    with pytest.raises(OutputTypeError, match="an object"):
        Tool(lambda: 1, name="t", parameters=parameters)


def test_what_has_no_schema_says_how_to_give_one() -> None:
    class Service:
        def ask(self, **more: Any) -> None: ...

    with pytest.raises(OutputTypeError, match=r"tool\(object\.method\)"):
        tool(Service.ask)
    with pytest.raises(OutputTypeError, match="parameters="):
        tool(Service().ask)


class CutBackend(ScriptedBackend):
    """Ends the calls of some variables at ``max_tokens``, after the script's text."""

    def __init__(self, cut: set[str], **script: Any) -> None:
        super().__init__(script, check_constraints=False)
        self.cut = cut

    async def stream(self, call: Any) -> Any:
        async for event in super().stream(call):
            if isinstance(event, Finished) and call.name in self.cut:
                event = replace(event, reason="length")
            yield event


@pytest.mark.parametrize(
    ("cut", "made"),
    [
        ('{"tool_calls": [{"name": "add", "arguments": {"a": 1}}, {"name": "add", "argum', ["add"]),
        ('{"tool_calls":[{"name":"add","arguments":{"a":1}},{"name":"add","arguments":{"a":2}}',
         ["add", "add"]),
        ('{"tool_calls": [{"name": "ad', []),
        ('{"answer": "tw', []),
    ],
)  # fmt: skip
def test_the_complete_calls_of_a_cut_turn_run_and_the_rest_is_asked_for(
    cut: str, made: list[str]
) -> None:
    @program
    def adds(s: State, max_turns: int = 4) -> str:
        s.user("Add.")
        return s.tools([plus], limits=AgentLimits(max_turns=max_turns)).value

    script = {"answer.turn1": cut, "answer.turn2": {"answer": "2"}}
    run = adds.run(backend=CutBackend({"answer.turn1"}, **script))
    assert run.result == "2"
    assert [node.tool for node in run.graph if isinstance(node, ToolCall)] == made
    assert "cut off" in run.messages()[-2]["content"]
    assert cut in run.text()
    with pytest.raises(NodeFailedError, match="cut off the answer"):
        adds.run(1, backend=CutBackend({"answer.turn1"}, **script))


@pytest.mark.parametrize("is_async", [False, True])
def test_a_call_runs_only_if_it_is_confirmed(scripted, is_async: bool) -> None:
    asked: list[tuple[str, dict[str, Any]]] = []
    ran: list[int] = []

    def decide(name: str, arguments: dict[str, Any]) -> Any:
        asked.append((name, arguments))
        if arguments["n"] == 3:
            raise OSError("the terminal is closed")
        return {1: True, 2: False, 4: "yes"}[arguments["n"]]

    async def decide_later(name: str, arguments: dict[str, Any]) -> Any:
        await asyncio.sleep(0)
        return decide(name, arguments)

    @tool(confirm=decide_later if is_async else decide)
    def erase(n: int) -> str:
        """Erases."""
        ran.append(n)
        return "done"

    backend = scripted(
        {
            "answer.turn1": {"tool_calls": [call_of("erase", n=n) for n in (1, 2, 3, 4)]},
            "answer.turn2": {"answer": "ok"},
        }
    )

    @program
    def agent(s: State) -> Any:
        s.user("?")
        return s.tools([erase])

    run = agent.run(backend=backend)
    assert ran == [1]
    assert sorted(arguments["n"] for _, arguments in asked) == [1, 2, 3, 4]
    assert run.messages()[2]["content"].splitlines()[1:] == [
        "erase: done",
        "erase: error: the call was not confirmed",
        "erase: error: not confirmed: OSError: the terminal is closed",
        "erase: error: the call was not confirmed",
    ]

"""The agent loop: the model calls tools, sees their results, and at last answers.

Where the model's chat template prints tools, it prints them at the head of the conversation, the
model calls them in the format that it was trained on, and results are turns of the role ``tool``.
Else the tools are described behind the question, and results are the user's. In both, a turn's
text is its record: ``{"tool_calls": [{"name": ..., "arguments": {...}}]}`` or ``{"answer": ...}``;
without a format of its own the model writes just that. A grammar made of the tools' schemas allows
no other calls, so a call always parses and validates.

The calls of one turn run concurrently, as nodes of the graph. A tool that raises or runs out of
time gives the model an error to react to. Of a turn that ``max_tokens`` cut off the complete calls
run, and the model is asked again for the rest. In the last turn that the limits allow only an
answer can be written.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ramet.grammars.constraints import Constraint, JsonSchema
from ramet.lang.base.errors import (
    AgentLimitError,
    NodeFailedError,
    OutputParseError,
    ToolFailedError,
    UsageError,
)
from ramet.lang.run.writer import Writer
from ramet.lang.types.expressions import GenExpr
from ramet.lang.types.labels import type_label
from ramet.lang.types.options import sampling_params
from ramet.lang.types.schemas import adapter_of
from ramet.lang.types.tools import Tool
from ramet.lang.types.types import OutputType
from ramet.lang.types.values import Value
from ramet.runtime.api.agent_turn import AgentTurn
from ramet.runtime.api.names import suggests_fields
from ramet.runtime.chat.agent_turns import read_record

_CUT = "Your last turn was cut off at its limit. Call again, in fewer words, what is missing here."


@suggests_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class AgentLimits:
    """The limits of an agent loop.

    Attributes:
        max_turns: turns of the model; the last can only be an answer.
        max_calls_a_turn: tool calls in one turn.
        max_tokens: generated tokens in all turns together; None: no limit.
        timeout_s: seconds after which no further turn begins; None: no limit.
    """

    max_turns: int = 8
    max_calls_a_turn: int = 4
    max_tokens: int | None = None
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        if self.max_turns < 1 or self.max_calls_a_turn < 1:
            raise UsageError("an agent needs at least one turn and one call a turn")


@dataclass(frozen=True, kw_only=True)
class Agent:
    """One agent loop, ready to run on a state."""

    tools: Sequence[Tool[..., Any]]
    name: str = "answer"
    answer: Any = None
    require_call: bool = False
    parallel: bool = True
    instructions: bool = True
    limits: AgentLimits = AgentLimits()
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [tool.name for tool in self.tools]
        if not names:
            raise UsageError("an agent needs at least one tool")
        if len(set(names)) != len(names):
            raise UsageError(f"two tools have one name: {', '.join(sorted(names))}")
        if not isinstance(self.limits, AgentLimits):
            raise UsageError(f"limits are AgentLimits(...), not {self.limits!r}")
        if self.require_call and self.limits.max_turns == 1:
            raise UsageError("require_call needs a turn to call in and one to answer: max_turns=2")
        _answer(self.answer)  # these raise now rather than in a turn
        sampling_params({}, self.options)

    def run(self, writer: Writer) -> Any:
        """Runs the loop in place on a writer's state and returns the answer.

        Raises:
            AgentLimitError: a limit of tokens or time.
        """
        native = self.instructions and writer.writes_tool_calls
        if self.instructions and not native:
            writer.continue_turn("user", describe_tools(self.tools))
        began = time.monotonic()
        num_tokens = 0
        for turn in range(self.limits.max_turns):
            self._check_limits(num_tokens, time.monotonic() - began)
            is_last = turn == self.limits.max_turns - 1
            must_call = self.require_call and turn == 0 and not is_last
            max_calls = 0 if is_last else self.limits.max_calls_a_turn if self.parallel else 1
            step = self._turn(writer, turn, max_calls=max_calls, must_call=must_call, native=native)
            num_tokens += step.meta.usage.completion_tokens
            action: Action = step.value
            if action.is_cut and is_last:
                raise AgentLimitError("max_tokens cut off the answer of the agent's last turn")
            if action.calls is None:
                return action.answer
            self._run_calls(writer, action, native=native)
        raise AgentLimitError("the agent used up its turns")  # the last turn only answers

    def _turn(
        self, writer: Writer, turn: int, *, max_calls: int, must_call: bool, native: bool
    ) -> Value[Any]:
        output = action_type(
            self.tools, self.answer, max_calls=max_calls, allows_answer=not must_call
        )
        next_tool = "|".join(tool.name for tool in self.tools) if max_calls else ""
        expr = GenExpr(f"{self.name}.turn{turn + 1}", output, self.options)
        agent_turn = self._agent_turn(max_calls, must_call=must_call) if native else None
        return writer.gen(expr, next_tool=next_tool, agent_turn=agent_turn)

    def _agent_turn(self, max_calls: int, *, must_call: bool) -> AgentTurn:
        answer: Constraint | None = None
        if self.answer not in (None, str):
            answer = JsonSchema(_answer(self.answer)[1], any_order=False, integers="plain")
        functions = tuple(tool.function_object() for tool in self.tools)
        return AgentTurn(
            functions=functions, max_calls=max_calls, must_call=must_call, answer=answer
        )

    def _run_calls(self, writer: Writer, action: Action, *, native: bool) -> None:
        calls = action.calls or []
        by_name = {tool.name: tool for tool in self.tools}
        results = [writer.call(by_name[call.name], call.arguments) for call in calls]
        texts = [_result_text(result) for result in results]
        if native:
            for text in texts:
                with writer.turn("tool"):
                    writer.text(text)
            if action.is_cut:
                writer.continue_turn("user", _CUT)
            return
        lines = ["Tool results:"] if calls else []
        lines += [f"{call.name}: {text}" for call, text in zip(calls, texts, strict=True)]
        if action.is_cut:
            lines.append(_CUT)
        writer.continue_turn("user", "\n".join(lines))

    def _check_limits(self, num_tokens: int, elapsed_s: float) -> None:
        if self.limits.max_tokens is not None and num_tokens >= self.limits.max_tokens:
            raise AgentLimitError(f"the agent wrote {num_tokens} tokens and hasn't answered")
        if self.limits.timeout_s is not None and elapsed_s >= self.limits.timeout_s:
            raise AgentLimitError(f"the agent hasn't answered in {self.limits.timeout_s:g} s")


def _result_text(result: Value[Any]) -> str:
    """A call's result, or its error, as the model sees it; waits for it."""
    try:
        result.value  # noqa: B018  waits, and raises what went wrong
    except NodeFailedError as error:
        reason = error.__cause__
        said = reason.reason if isinstance(reason, ToolFailedError) else str(reason)
        return f"error: {said}"
    return f"{result}"


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """A call that the model asks for."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Action:
    """A turn: calls, or an answer if ``calls`` is None.

    Of a turn that was cut off there are only the calls that are complete.
    """

    calls: list[ToolRequest] | None
    answer: Any = None
    is_cut: bool = False


def describe_tools(tools: Sequence[Tool[..., Any]]) -> str:
    """Instructions for calling tools in an agent loop, for a system prompt."""
    lines = ["You can call these tools:"]
    lines += [
        f"- {tool.name}: {tool.description} Arguments: {json.dumps(tool.parameters)}"
        for tool in tools
    ]
    lines += [
        'To call tools, write {"tool_calls": [{"name": "...", "arguments": {...}}]}.',
        'When you know the answer, write {"answer": ...}.',
    ]
    return "\n".join(lines)


def action_type(
    tools: Sequence[Tool[..., Any]], answer: Any, *, max_calls: int, allows_answer: bool
) -> OutputType[Action]:
    """The output type of one turn. No calls are allowed where ``max_calls`` is 0."""
    adapter, answer_schema = _answer(answer)
    definitions: dict[str, Any] = {}
    ways: list[dict[str, Any]] = []
    if max_calls:
        calls = [
            _object(
                name={"const": tool.name},
                arguments=_lifted(tool.parameters, f"{tool.name}()", definitions),
            )
            for tool in tools
        ]
        array = {
            "type": "array",
            "items": calls[0] if len(calls) == 1 else {"anyOf": calls},
            "minItems": 1,
            "maxItems": max_calls,
        }
        ways.append(_object(tool_calls=array))
    if allows_answer:
        ways.append(_object(answer=_lifted(answer_schema, "answer", definitions)))
    schema = ways[0] if len(ways) == 1 else {"anyOf": ways}
    if definitions:
        schema = {**schema, "$defs": definitions}

    def parse(text: str) -> Action:
        try:
            data = json.loads(text)
            if "tool_calls" not in data:
                member = json.dumps(data["answer"])
                return Action(None, adapter.validate_json(member))
            calls = [ToolRequest(call["name"], call["arguments"]) for call in data["tool_calls"]]
            return Action(calls)
        except (ValueError, KeyError, TypeError, ValidationError) as error:
            raise OutputParseError(text, "a tool call or an answer", str(error)) from error

    constraint = JsonSchema(schema, any_order=False, integers="plain")

    def parse_cut(text: str) -> Action:
        """A text that was cut off in the model's own format, or the complete calls of a turn."""
        is_whole = text.endswith("}") and "tool_calls" not in read_record(text)
        return parse(text) if is_whole and answer in (None, str) else _complete_calls(text)

    return OutputType("a tool call or an answer", constraint, parse, parse_cut=parse_cut)


def _complete_calls(text: str) -> Action:
    """The calls of a turn that was cut off."""
    calls = read_record(text).get("tool_calls", ())
    return Action([ToolRequest(call["name"], call["arguments"]) for call in calls], is_cut=True)


def _answer(answer: Any) -> tuple[TypeAdapter[Any], dict[str, Any]]:
    return adapter_of(str if answer is None else answer, type_label(answer))


def _object(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _lifted(schema: Any, name: str, definitions: dict[str, Any]) -> Any:
    """A reference to a schema that is moved whole to ``definitions``, as ``name``."""
    pointer = "#/$defs/" + name.replace("~", "~0").replace("/", "~1")

    def renamed(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: pointer + item[1:]
                if key == "$ref" and isinstance(item, str) and item[:2] in ("#", "#/")
                else renamed(item)
                for key, item in value.items()
            }
        if isinstance(value, list):
            return [renamed(item) for item in value]
        return value

    definitions[name] = renamed(schema)
    return {"$ref": pointer}

"""Converts Anthropic's turns of blocks to a ``Conversation``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Literal

from ramet.grammars.constraints.writing import answer_schema
from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.chat.conversation import Conversation
from ramet.runtime.chat.offered_tools import OfferedTool
from ramet.runtime.chat.param_paths import RequestedConstraint
from ramet.runtime.server.anthropic.bodies import (
    CountTokensRequest,
    Message,
    Text,
    TextBlock,
    ThinkingBlock,
    ToolChoice,
    ToolResultBlock,
    ToolUseBlock,
)
from ramet.runtime.server.protocol.builtin_tools import BuiltInTool

_CHOICES: dict[str, Literal["auto", "required", "none"]] = {
    "auto": "auto",
    "any": "required",
    "none": "none",
}


def anthropic_conversation(body: CountTokensRequest) -> Conversation:
    """Builds the conversation of a body.

    A conversation that ends with the assistant's text is continued inside that text.

    Raises:
        InvalidParameterError: a result without its call, or parts that exclude each other.
    """
    messages = _Turns(body.system, body.messages).messages
    choice = body.tool_choice or ToolChoice(type="auto")
    continues = messages[-1]["role"] == "assistant"
    constraint = _constraint(body)
    tools = [
        tool.offered(f"tools[{index}]")
        for index, tool in enumerate(body.tools or ())
        if not isinstance(tool, BuiltInTool)
    ]
    if continues and (constraint is not None or choice.type in ("any", "tool")):
        raise InvalidParameterError(
            "an answer that continues the last message can't have a required format or tool "
            "call; end the messages with a user turn",
            param="messages",
        )
    return Conversation(
        messages=messages,
        tools=tools,
        tool_choice=_tool_choice(choice, tools),
        parallel_tool_calls=not choice.disable_parallel_tool_use,
        constraint=constraint,
        reasoning_effort=body.output_config.effort if body.output_config else None,
        thinking=_thinking(body),
        thinking_budget=body.thinking.budget_tokens if body.thinking else None,
        effort_field="output_config.effort",
        thinking_field="thinking",
        add_generation_prompt=not continues,
        continue_final_message=continues,
    )


def _constraint(body: CountTokensRequest) -> RequestedConstraint | None:
    wanted, field = body.output_format, "output_format"
    if body.output_config is not None and body.output_config.format is not None:
        if wanted is not None:
            raise InvalidParameterError(
                "output_format is an earlier name of output_config.format; give one of them",
                param="output_format",
            )
        wanted, field = body.output_config.format, "output_config.format"
    if wanted is None:
        return None
    return RequestedConstraint(answer_schema(wanted.schema_), f"{field}.schema")


def _tool_choice(
    choice: ToolChoice, tools: Iterable[OfferedTool]
) -> Literal["none", "auto", "required"] | tuple[Literal["tool"], str]:
    if (choice.type == "tool") != (choice.name is not None):
        raise InvalidParameterError(
            "tool_choice has a name if, and only if, its type is 'tool'", param="tool_choice"
        )
    if choice.name is None:
        return _CHOICES[choice.type]
    if choice.name not in {tool.name for tool in tools}:
        raise InvalidParameterError(
            f"tool_choice names {choice.name!r}, which is not among the tools", param="tool_choice"
        )
    return ("tool", choice.name)


def _thinking(body: CountTokensRequest) -> bool | None:
    return None if body.thinking is None else body.thinking.type != "disabled"


class _Turns:
    """Builds ``messages``, in OpenAI's shape, from the system prompt and the turns."""

    def __init__(self, system: Text | None, turns: Iterable[Message]) -> None:
        self.messages: list[dict[str, Any]] = []
        self._tool_names: dict[str, str] = {}
        if system:
            self._say("system", _plain(system))
        for index, turn in enumerate(turns):
            for place, block in enumerate(turn.blocks()):
                self._add(turn.role, block, f"messages[{index}].content[{place}]")
        if not self.messages:
            raise InvalidParameterError("the messages have no content", param="messages")
        if "tool_calls" in self.messages[-1]:
            raise InvalidParameterError(
                "the last message's tool_use has no tool_result", param="messages"
            )

    def _add(
        self,
        role: str,
        block: TextBlock | ThinkingBlock | ToolUseBlock | ToolResultBlock,
        where: str,
    ) -> None:
        if isinstance(block, TextBlock):
            self._say(role, block.text)
            return
        if role != ("user" if isinstance(block, ToolResultBlock) else "assistant"):
            raise InvalidParameterError(f"{where}: a {role} has no {block.type}", param=where)
        match block:
            case ThinkingBlock():
                self._assistant()["reasoning_content"] = block.thinking
            case ToolUseBlock():
                self._call(block)
            case ToolResultBlock():
                self._result(block, where)

    def _last(self, role: str) -> dict[str, Any] | None:
        """Returns the last message if it has this role."""
        return self.messages[-1] if self.messages and self.messages[-1]["role"] == role else None

    def _say(self, role: str, text: str) -> None:
        """Appends text to the turn; starts a new one after a call."""
        last = self._last(role)
        if last is None or "tool_calls" in last:
            self.messages.append({"role": role, "content": text})
        elif last["content"]:
            last["content"] += "\n" + text
        else:
            last["content"] = text

    def _assistant(self) -> dict[str, Any]:
        last = self._last("assistant")
        if last is None:
            last = {"role": "assistant", "content": ""}
            self.messages.append(last)
        return last

    def _call(self, block: ToolUseBlock) -> None:
        arguments = json.dumps(block.input, ensure_ascii=False)
        self._tool_names[block.id] = block.name
        self._assistant().setdefault("tool_calls", []).append(
            {
                "id": block.id,
                "type": "function",
                "function": {"name": block.name, "arguments": arguments},
            }
        )

    def _result(self, block: ToolResultBlock, where: str) -> None:
        if block.tool_use_id not in self._tool_names:
            raise InvalidParameterError(
                f"{where}: no earlier tool_use has the id {block.tool_use_id!r}",
                param=f"{where}.tool_use_id",
            )
        text = _plain(block.content or "")
        self.messages.append(
            {
                "role": "tool",
                "tool_call_id": block.tool_use_id,
                "name": self._tool_names[block.tool_use_id],
                "content": f"Error: {text}" if block.is_error else text,
            }
        )


def _plain(content: Text) -> str:
    """Joins blocks by line breaks."""
    return content if isinstance(content, str) else "\n".join(block.text for block in content)

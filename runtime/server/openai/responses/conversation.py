"""Converts the Responses API's items to a ``Conversation``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.chat.choice import CollectedMessage
from ramet.runtime.chat.conversation import Conversation, ToolChoice
from ramet.runtime.chat.offered_tools import custom_arguments, model_name, past_call
from ramet.runtime.server.openai.chat.shapes import whole_message
from ramet.runtime.server.openai.responses.bodies import (
    AllowedTools,
    InputTokensRequest,
    NamedTool,
    offered_tools,
)
from ramet.runtime.server.openai.responses.items import (
    CallOutputItem,
    CustomCallItem,
    FunctionCallItem,
    Input,
    MessageItem,
    ReasoningItem,
    plain_text,
)

ChatMessage = dict[str, Any]
"""A message in the shape of chat completions."""


def add_input(earlier: Sequence[ChatMessage], given: Input) -> list[ChatMessage]:
    """Appends the client's items to the conversation so far.

    An answer's reasoning, text and calls, which are items of their own here, are one message.

    Raises ``InvalidParameterError`` for the output of an unknown call.
    """
    if isinstance(given, str):
        return [*earlier, {"role": "user", "content": given}]
    messages = list(earlier)
    names = {
        call["id"]: call["function"]["name"]
        for message in earlier
        for call in message.get("tool_calls", ())
    }
    own_from = len(messages)
    for index, item in enumerate(given):
        last: ChatMessage = messages[-1] if len(messages) > own_from else {"role": ""}
        match item:
            case ReasoningItem():
                messages.append({"role": "assistant", "reasoning_content": item.text})
            case MessageItem(role="assistant") if _awaits(last, "content", "tool_calls"):
                last["content"] = plain_text(item.content)
            case MessageItem():
                messages.append({"role": item.role, "content": plain_text(item.content)})
            case FunctionCallItem() | CustomCallItem():
                names[item.call_id] = item.model_name
                if last["role"] != "assistant":
                    last = {"role": "assistant"}
                    messages.append(last)
                last.setdefault("tool_calls", []).append(_call(item))
            case CallOutputItem():
                messages.append(_output(item, names, f"input[{index}]"))
    if not messages:
        raise InvalidParameterError("input has no items", param="input")
    return messages


def _awaits(message: ChatMessage, *parts: str) -> bool:
    """Whether a message is an answer that has only reasoning so far."""
    return message["role"] == "assistant" and not any(part in message for part in parts)


def _call(item: FunctionCallItem | CustomCallItem) -> dict[str, Any]:
    return past_call(item.call_id, item.model_name, item.arguments)


def _output(item: CallOutputItem, names: dict[str, str], where: str) -> ChatMessage:
    if item.call_id not in names:
        raise InvalidParameterError(
            f"{where}: no earlier call has the call_id {item.call_id!r}",
            param=f"{where}.call_id",
        )
    return {
        "role": "tool",
        "tool_call_id": item.call_id,
        "name": names[item.call_id],
        "content": plain_text(item.output),
    }


def answer_message(message: CollectedMessage) -> ChatMessage:
    """Converts an answer to a message for continuing the conversation."""
    shaped = {key: value for key, value in whole_message(message).items() if value is not None}
    if message.calls:
        shaped["tool_calls"] = [
            past_call(
                call.id,
                model_name(call.name, call.namespace),
                custom_arguments(call.arguments) if call.is_custom else call.arguments,
            )
            for call in message.calls
        ]
    return shaped


def responses_conversation(
    body: InputTokensRequest, messages: Sequence[ChatMessage]
) -> Conversation:
    """Builds the conversation of a body; ``messages`` begin with its instructions."""
    choice, allowed = _tool_choice(body)
    return Conversation(
        messages=_instructed(messages, body.instructions),
        tools=offered_tools(body.tools),
        tool_choice=choice,
        allowed_tools=allowed,
        parallel_tool_calls=body.parallel_tool_calls,
        constraint=body.text.format.requested_constraint("text.format"),
        reasoning_effort=body.reasoning.effort if body.reasoning else None,
        effort_field="reasoning.effort",
    )


def _instructed(messages: Sequence[ChatMessage], instructions: str | None) -> list[ChatMessage]:
    """Merges instructions into a leading system message: many templates accept only one."""
    if not instructions:
        return list(messages)
    first = messages[0]
    if first["role"] in ("system", "developer"):
        joined = f"{instructions}\n\n{first['content']}"
        return [{"role": "system", "content": joined}, *messages[1:]]
    return [{"role": "system", "content": instructions}, *messages]


def _tool_choice(body: InputTokensRequest) -> tuple[ToolChoice, tuple[str, ...] | None]:
    """The tool choice, and the allowed tools if not all are."""
    match body.tool_choice:
        case NamedTool(model_name=name):
            return ("tool", name), None
        case AllowedTools(mode=mode, tools=tools):
            return mode, tuple(tool.model_name for tool in tools)
        case word:
            return word or "auto", None

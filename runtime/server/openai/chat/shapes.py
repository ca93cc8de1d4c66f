"""Formats messages and deltas for OpenAI's chat completions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ramet.runtime.chat.choice import CollectedCall, CollectedMessage
from ramet.runtime.parsers import (
    ChatDelta,
    ContentDelta,
    ReasoningDelta,
    ToolArgumentsDelta,
    ToolCallStart,
)


def chunk_deltas(deltas: Iterable[ChatDelta], message: CollectedMessage) -> list[dict[str, Any]]:
    """Formats deltas as ``delta`` objects, each with only what changed.

    A call's id and name are in its first delta only. ``message`` is the whole so far.
    """
    shaped: list[dict[str, Any]] = []
    for delta in deltas:
        match delta:
            case ContentDelta(text):
                shaped.append({"content": text})
            case ReasoningDelta(text):
                shaped.append({"reasoning_content": text})
            case ToolCallStart(index):
                call = _call(message.calls[index], "")
                shaped.append({"tool_calls": [{"index": index, **call}]})
            case ToolArgumentsDelta(index, text):
                is_custom = message.calls[index].is_custom
                more = (
                    {"custom": {"input": text}} if is_custom else {"function": {"arguments": text}}
                )
                shaped.append({"tool_calls": [{"index": index, **more}]})
    return shaped


def _call(call: CollectedCall, arguments: str) -> dict[str, Any]:
    if call.is_custom:
        custom = {"name": call.name, "input": arguments}
        return {"id": call.id, "type": "custom", "custom": custom}
    function = {"name": call.name, "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


def whole_message(message: CollectedMessage) -> dict[str, Any]:
    """Formats the assistant message; ``content`` is null if there are only tool calls."""
    shaped: dict[str, Any] = {
        "role": "assistant",
        "content": message.content if message.content or not message.calls else None,
        "refusal": None,
    }
    if message.reasoning:
        shaped["reasoning_content"] = message.reasoning
    if message.calls:
        shaped["tool_calls"] = [_call(call, call.arguments) for call in message.calls]
    return shaped

"""Adapts conversations to templates with channels (gpt-oss's harmony)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

ChatMessage = Mapping[str, Any]


def channel_messages(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Splits messages to one tool call each and renames the reasoning.

    These templates render only a message's first call, and match a result to the preceding call.
    """
    out: list[ChatMessage] = []
    position = 0
    while position < len(messages):
        message = messages[position]
        position += 1
        calls = message.get("tool_calls") or ()
        if len(calls) < 2:
            out.append(_with_thinking(message))
            continue
        start = position
        while position < len(messages) and messages[position]["role"] == "tool":
            position += 1
        out.extend(_call_by_call(message, calls, messages[start:position]))
    return out


def described_tools(tools: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Adds empty descriptions to tools: these templates always render them."""
    return [{**tool, "function": {"description": "", **tool["function"]}} for tool in tools]


def _call_by_call(
    message: ChatMessage, calls: Sequence[Mapping[str, Any]], results: Sequence[ChatMessage]
) -> Iterator[ChatMessage]:
    """Yields each call as a message, followed by its results."""
    first: ChatMessage = {key: value for key, value in message.items() if key != "tool_calls"}
    left = list(results)
    for index, call in enumerate(calls):
        head = first if index == 0 else {"role": message["role"], "content": ""}
        yield _with_thinking({**head, "tool_calls": [call]})
        is_last = index == len(calls) - 1
        own = [r for r in left if is_last or r.get("tool_call_id") == call.get("id")]
        left = [result for result in left if result not in own]
        yield from own


def _with_thinking(message: ChatMessage) -> ChatMessage:
    """Adds the reasoning, unless the template would drop the content of a call for it."""
    reasoning = message.get("reasoning_content")
    if not reasoning or (message.get("tool_calls") and message.get("content")):
        return message
    return {**message, "thinking": reasoning}

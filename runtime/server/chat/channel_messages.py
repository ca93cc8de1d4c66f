"""Conversations as templates of channels take them (gpt-oss's harmony)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

ChatMessage = Mapping[str, Any]


def channel_messages(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """The same conversation with one call a message, and reasoning under its name there.

    These templates print only a message's first call, and know a result by the call before it.
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
    """The tools, each with a description, which these templates print unasked."""
    return [{**tool, "function": {"description": "", **tool["function"]}} for tool in tools]


def _call_by_call(
    message: ChatMessage, calls: Sequence[Mapping[str, Any]], results: Sequence[ChatMessage]
) -> Iterator[ChatMessage]:
    """Each call in a message of its own, with its results behind it."""
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
    """With a call these templates print the reasoning or the content, not both."""
    reasoning = message.get("reasoning_content")
    if not reasoning or (message.get("tool_calls") and message.get("content")):
        return message
    return {**message, "thinking": reasoning}

"""Past calls of tools in a conversation, in the order that models were trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Message = Mapping[str, Any]


def results_after_calls(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages with each result behind the message that called for it, in the calls' order.

    Clients may send results in any order, and other messages before them. Results without an id,
    and those of unknown calls, stay where they are.
    """
    results: dict[str, list[int]] = {}
    for index, message in enumerate(messages):
        if message.get("role") == "tool" and isinstance(message.get("tool_call_id"), str):
            results.setdefault(message["tool_call_id"], []).append(index)
    if not results:
        return messages
    ordered: list[int] = []
    placed: set[int] = set()
    for index, message in enumerate(messages):
        if index in placed:
            continue
        ordered.append(index)
        for call_id in _call_ids(message):
            later = [each for each in results.get(call_id, ()) if each > index]
            own = later[:1]  # an id may come again: each call has its own result
            if own:
                results[call_id].remove(own[0])
                ordered += own
                placed.update(own)
    return [messages[index] for index in ordered]


def numbered_calls(messages: Sequence[Message]) -> list[Message]:
    """The messages with ids of the form ``functions.NAME:N``, N counting all calls from 0.

    Templates of such models print the id as the call's head.
    """
    out: list[Message] = []
    given: dict[Any, str] = {}
    number = 0
    for message in messages:
        calls = message.get("tool_calls")
        if calls and isinstance(calls, Sequence):
            renamed = []
            for call in calls:
                function = call.get("function") if isinstance(call, Mapping) else None
                if isinstance(function, Mapping):
                    own = f"functions.{function.get('name')}:{number}"
                    given[call.get("id")] = own
                    call = {**call, "id": own}
                renamed.append(call)
                number += 1
            message = {**message, "tool_calls": renamed}
        elif message.get("role") == "tool" and message.get("tool_call_id") in given:
            message = {**message, "tool_call_id": given[message["tool_call_id"]]}
        out.append(message)
    return out


def has_calls(messages: Sequence[Message]) -> bool:
    """Whether tools have been called in a conversation."""
    return any(message.get("tool_calls") for message in messages)


def _call_ids(message: Message) -> list[str]:
    calls = message.get("tool_calls")
    if message.get("role") != "assistant" or not isinstance(calls, Sequence):
        return []
    ids = (call.get("id") for call in calls if isinstance(call, Mapping))
    return [each for each in ids if isinstance(each, str)]

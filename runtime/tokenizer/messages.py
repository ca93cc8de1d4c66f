"""Chat messages as clients send them, brought to the one form that chat templates expect."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ramet.runtime.api.errors import ChatTemplateError

Message = Mapping[str, Any]

_ROLE = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")
_TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}


def normalise_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Copies of the messages in which every way to say the same thing has become one.

    Absent, null, empty and list-of-text-parts content become a string; an empty or null
    ``tool_calls`` is left out; a call's arguments, sent as JSON text, become the object that
    templates print. Raises ``ChatTemplateError`` for what no template can print.
    """
    if not isinstance(messages, list | tuple):
        raise ChatTemplateError("messages must be a list", param="messages")
    if not messages:
        raise ChatTemplateError("messages must have at least one message", param="messages")
    return [_normalise(message, index) for index, message in enumerate(messages)]


def arguments_as_text(messages: Sequence[Message]) -> list[Message]:
    """The normalised messages with each call's arguments as JSON text."""
    return [
        {**message, "tool_calls": [_with_text(call) for call in message["tool_calls"]]}
        if "tool_calls" in message
        else message
        for message in messages
    ]


def _with_text(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments = function["arguments"]
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return {**call, "function": {**function, "arguments": arguments}}


def _normalise(message: Message, index: int) -> dict[str, Any]:
    where = f"messages[{index}]"
    if not isinstance(message, Mapping):
        raise ChatTemplateError(f"{where} must be an object", param="messages")
    role = message.get("role")
    if not isinstance(role, str) or not _ROLE.fullmatch(role):
        raise ChatTemplateError(
            f"{where}.role must be a plain word, not {role!r}", param="messages"
        )
    result = {key: value for key, value in message.items() if value is not None}
    result["content"] = _text(message.get("content"), where)
    calls = result.pop("tool_calls", None)
    if calls:
        if isinstance(calls, str) or not isinstance(calls, Sequence):
            raise ChatTemplateError(f"{where}.tool_calls must be a list", param="messages")
        result["tool_calls"] = [
            _call(call, f"{where}.tool_calls[{i}]") for i, call in enumerate(calls)
        ]
    return result


def _text(content: Any, where: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence) or isinstance(content, bytes):
        raise ChatTemplateError(
            f"{where}.content must be a string or a list of parts", param="messages"
        )
    texts = []
    for i, part in enumerate(content):
        kind = part.get("type") if isinstance(part, Mapping) else None
        text = part.get(_TEXT_PARTS[kind]) if kind in _TEXT_PARTS else None
        if not isinstance(text, str):
            raise ChatTemplateError(
                f"{where}.content[{i}] is of type {kind!r}; this model takes only text",
                param="messages",
                code="unsupported_content",
            )
        texts.append(text)
    return "".join(texts)


def _call(call: Any, where: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise ChatTemplateError(f"{where} must have a function with a name", param="messages")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            parsed = json.loads(arguments) if arguments.strip() else {}
        except (ValueError, RecursionError):
            parsed = None
        # What is no object is printed as it was sent: the model did say it.
        arguments = parsed if isinstance(parsed, dict) else arguments
    return {**call, "function": {**function, "arguments": {} if arguments is None else arguments}}

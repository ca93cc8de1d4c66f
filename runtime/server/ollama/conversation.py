"""Converts Ollama's messages to a ``Conversation``."""

from __future__ import annotations

from typing import Any

from ramet.grammars.constraints import JsonObject
from ramet.grammars.constraints.writing import answer_schema
from ramet.runtime.chat.conversation import Conversation
from ramet.runtime.chat.param_paths import RequestedConstraint
from ramet.runtime.server.ollama.bodies import (
    ChatMessage,
    OllamaCall,
    OllamaChatRequest,
    OllamaGenerateRequest,
)


def chat_conversation(body: OllamaChatRequest) -> Conversation:
    """The conversation of a chat."""
    tools = [tool.offered(index) for index, tool in enumerate(body.tools or ())]
    return _conversation(body, _messages(body.messages), tools=tools)


def prompt_conversation(body: OllamaGenerateRequest) -> Conversation:
    """A prompt as a conversation of one turn."""
    messages = [{"role": "system", "content": body.system}] if body.system else []
    return _conversation(body, [*messages, {"role": "user", "content": body.prompt}])


def _conversation(body: OllamaCall, messages: list[dict[str, Any]], **more: Any) -> Conversation:
    return Conversation(
        messages=messages,
        constraint=_constraint(body),
        thinking=body.think if isinstance(body.think, bool) else None,
        reasoning_effort=body.think if isinstance(body.think, str) else None,
        effort_field="think",
        thinking_field="think",
        **more,
    )


def _constraint(body: OllamaCall) -> RequestedConstraint | None:
    if not body.format and body.format != {}:
        return None
    if isinstance(body.format, dict):
        return RequestedConstraint(answer_schema(body.format), "format")
    return RequestedConstraint(JsonObject(), "format")


def _messages(sent: list[ChatMessage]) -> list[dict[str, Any]]:
    """Messages in OpenAI's shape. Calls get ids; a result without one belongs to the first call
    that has none yet, of its tool if it names one."""
    messages: list[dict[str, Any]] = []
    waiting: list[tuple[str, str]] = []  # ids and names of calls without results
    for message in sent:
        shaped: dict[str, Any] = {"role": message.role, "content": message.content}
        if message.thinking:
            shaped["reasoning_content"] = message.thinking
        if message.tool_calls:
            shaped["tool_calls"] = []
            for call in message.tool_calls:
                call_id = call.id or f"call_{len(messages)}_{len(shaped['tool_calls'])}"
                waiting.append((call_id, call.function.name))
                function = {"name": call.function.name, "arguments": call.function.arguments}
                shaped["tool_calls"].append(
                    {"id": call_id, "type": "function", "function": function}
                )
        if message.role == "tool":
            found = _take(waiting, message)
            if found is not None:
                shaped["tool_call_id"], shaped["name"] = found
            elif message.tool_name:
                shaped["name"] = message.tool_name
        messages.append(shaped)
    return messages


def _take(waiting: list[tuple[str, str]], result: ChatMessage) -> tuple[str, str] | None:
    """The call that a result belongs to, which no longer waits."""
    for place, (call_id, name) in enumerate(waiting):
        if result.tool_call_id is not None:
            is_it = call_id == result.tool_call_id
        else:
            is_it = result.tool_name in (None, name)
        if is_it:
            return waiting.pop(place)
    return None

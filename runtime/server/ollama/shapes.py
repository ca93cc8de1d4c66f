"""Ollama's answers: objects, one a line when they are streamed."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable
from typing import Any

from ramet.runtime.chat.choice import ChatChoice, CollectedCall
from ramet.runtime.parsers import ChatDelta, ContentDelta, ReasoningDelta, ToolCallEnd
from ramet.runtime.server.http.json_response import json_bytes

NDJSON = "application/x-ndjson"
_NS = 1_000_000_000


def line(value: dict[str, Any]) -> bytes:
    """One object of a stream."""
    return json_bytes(value) + b"\n"


def head(model: str) -> dict[str, Any]:
    """What every object begins with."""
    now = datetime.datetime.now(datetime.UTC).isoformat().replace("+00:00", "Z")
    return {"model": model, "created_at": now}


class ChatShape:
    """``/api/chat``: what an answer adds is a ``message``."""

    def piece(self, text: str, thinking: str, calls: Iterable[CollectedCall]) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if thinking:
            message["thinking"] = thinking
        if shaped := [_call(each) for each in calls]:
            message["tool_calls"] = shaped
        return {"message": message}


class GenerateShape:
    """``/api/generate``: what an answer adds is its ``response``."""

    def piece(self, text: str, thinking: str, calls: Iterable[CollectedCall]) -> dict[str, Any]:
        del calls  # there are no tools
        return {"response": text, **({"thinking": thinking} if thinking else {})}


Shape = ChatShape | GenerateShape


def pieces(shape: Shape, deltas: Iterable[ChatDelta], choice: ChatChoice) -> list[dict[str, Any]]:
    """The objects of some deltas; a call is one once its arguments are complete."""
    found = []
    for delta in deltas:
        match delta:
            case ContentDelta(text):
                found.append(shape.piece(text, "", ()))
            case ReasoningDelta(text):
                found.append(shape.piece("", text, ()))
            case ToolCallEnd(index, complete=True):
                found.append(shape.piece("", "", [choice.message.calls[index]]))
    return found


def whole(shape: Shape, choice: ChatChoice) -> dict[str, Any]:
    """The answer in one object."""
    message = choice.message
    calls = [each for each in message.calls if each.complete]
    return shape.piece(message.content, message.reasoning, calls)


def end(choice: ChatChoice) -> dict[str, Any]:
    """The last object's fields: the reason, and times in nanoseconds."""
    assert choice.finished is not None
    usage, timings = choice.finished.usage, choice.finished.timings
    total = timings.finished_s or 0.0
    first = timings.first_token_s if timings.first_token_s is not None else total
    begun = timings.scheduled_s or 0.0
    return {
        "done": True,
        "done_reason": choice.finished.reason,
        "total_duration": round(total * _NS),
        "load_duration": round(begun * _NS),
        "prompt_eval_count": usage.prompt_tokens,
        "prompt_eval_duration": round(max(0.0, first - begun) * _NS),
        "eval_count": usage.completion_tokens,
        "eval_duration": round(max(0.0, total - first) * _NS),
    }


def _call(call: CollectedCall) -> dict[str, Any]:
    arguments = json.loads(call.arguments)
    return {"id": call.id, "function": {"name": call.name, "arguments": arguments}}

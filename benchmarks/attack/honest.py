"""Requests with known answers: each must get the same text during the whole attack."""

from __future__ import annotations

import json
import random
from typing import Any

Body = dict[str, Any]

_CHAT = [{"role": "user", "content": "Tell me about rivers."}]
_SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "kind": {"enum": ["river", "lake"]},
        "length": {"type": "integer", "minimum": 0, "maximum": 9999},
    },
    "required": ["name", "kind", "length"],
}
_TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "parameters": {"type": "object", "properties": {"place": {"enum": ["Oslo", "Rome"]}}},
    },
}
_GRAPH = {
    "name": "two",
    "nodes": [
        {"kind": "text", "id": "0", "parts": ["A river: "]},
        {
            "kind": "gen",
            "id": "1",
            "parent": "0",
            "name": "a",
            "params": {"max_tokens": 8, "seed": 3},
        },
        {"kind": "text", "id": "2", "parent": "1", "parts": [" and a lake: "]},
        {
            "kind": "gen",
            "id": "3",
            "parent": "2",
            "name": "b",
            "params": {"max_tokens": 8, "seed": 4},
        },
    ],
}

HONEST: tuple[tuple[str, Body], ...] = (
    ("/v1/completions", {"prompt": "Once", "max_tokens": 40, "temperature": 0}),
    ("/v1/completions", {"prompt": "Once " * 120, "max_tokens": 20, "seed": 1}),
    ("/v1/completions", {"prompt": ["One", "Two"], "max_tokens": 16, "seed": 2, "n": 3}),
    ("/v1/completions", {"prompt": "Go", "max_tokens": 60, "seed": 3, "stream": True}),
    ("/v1/completions", {"prompt": "7", "guided_regex": "[0-9]{3}-[0-9]{4}", "seed": 4}),
    ("/v1/completions", {"prompt": "7", "guided_choice": ["yes", "no"], "seed": 5, "n": 2}),
    ("/v1/completions", {"prompt": "x", "guided_grammar": 'root ::= "a" [0-9]+ "b"', "seed": 6,
                         "max_tokens": 24}),
    ("/v1/chat/completions", {"messages": _CHAT, "max_tokens": 30, "seed": 7}),
    ("/v1/chat/completions", {"messages": _CHAT, "max_tokens": 50, "seed": 8, "stream": True,
                              "n": 2}),
    ("/v1/chat/completions", {"messages": _CHAT, "seed": 9, "response_format": {
        "type": "json_schema", "json_schema": {"name": "r", "schema": _SCHEMA}}}),
    ("/v1/chat/completions", {"messages": _CHAT, "seed": 10, "tools": [_TOOL],
                              "tool_choice": "required", "max_tokens": 80}),
    ("/v1/messages", {"messages": _CHAT, "max_tokens": 24, "temperature": 0, "stream": True}),
    ("/v1/responses", {"input": "Rivers", "seed": 11, "max_output_tokens": 24, "store": False}),
    ("/v1/programs", {"graph": _GRAPH, "seed": 12}),
)  # fmt: skip
"""A path and a body each, all with a seed or greedy."""


def answer_of(path: str, body: Body, raw: bytes) -> str:
    """The part of an answer that must not change: its texts and calls.

    Raises:
        ValueError: it is not complete.
    """
    if not body.get("stream"):
        return _texts(json.loads(raw))
    texts: dict[int, str] = {}
    ends = 0
    for block in raw.decode().strip().split("\n\n"):
        data = next(line[5:].strip() for line in block.split("\n") if line.startswith("data:"))
        if ends:
            raise ValueError("an event behind the end")
        if data == "[DONE]":
            ends += 1
            continue
        event = json.loads(data)
        if "error" in event:
            raise StreamError(event["error"])
        ends += event.get("type") == "message_stop"
        for choice in event.get("choices", ()):
            text = choice["delta"].get("content") or "" if "delta" in choice else choice["text"]
            texts[choice["index"]] = texts.get(choice["index"], "") + text
        if event.get("type") == "content_block_delta":
            texts[0] = texts.get(0, "") + event["delta"]["text"]
    if not ends:
        raise ValueError(f"a stream without an end: {path}")
    return json.dumps(texts, sort_keys=True)


class StreamError(Exception):
    """A stream that ended with an error event."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(str(error))
        self.code = str(error.get("code") or error.get("type"))


def _texts(answer: Body) -> str:
    """Everything of a whole answer but ids, times and counts."""
    if "choices" in answer:
        kept: Any = [
            each.get("text") or [each["message"]["content"], _calls(each["message"])]
            for each in answer["choices"]
        ]
    else:
        kept = answer.get("values") or answer.get("output") or answer["content"]
        for item in kept if isinstance(kept, list) else ():
            item.pop("id", None)
    return json.dumps(kept, sort_keys=True)


def _calls(message: Body) -> list[Any]:
    return [call["function"] for call in message.get("tool_calls") or ()]


def pick(rng: random.Random) -> int:
    """The index of a random honest request."""
    return rng.randrange(len(HONEST))

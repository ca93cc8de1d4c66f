"""Formats answers and events for Anthropic's Messages API.

https://docs.anthropic.com/en/docs/build-with-claude/streaming
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ramet.runtime.api.events import Usage
from ramet.runtime.chat.choice import ChatChoice, CollectedMessage
from ramet.runtime.parsers import (
    ChatDelta,
    ContentDelta,
    ReasoningDelta,
    ToolArgumentsDelta,
    ToolCallEnd,
    ToolCallStart,
)

Event = dict[str, Any]
"""An event's data; its ``type`` is also the event's name."""

_STOP_REASONS = {"length": "max_tokens", "tool_calls": "tool_use"}


class AnswerBlocks:
    """The content blocks of an answer as it grows: each delta becomes events, and the blocks are
    what a client makes of the events.

    Attributes:
        blocks: the content so far. A tool call that was cut short has an empty input.
    """

    def __init__(self, message: CollectedMessage) -> None:
        self._message = message
        self._is_open = False
        self.blocks: list[dict[str, Any]] = []

    def feed(self, deltas: Iterable[ChatDelta]) -> list[Event]:
        """Converts deltas to events."""
        events: list[Event] = []
        for delta in deltas:
            match delta:
                case ContentDelta(text):
                    self._more("text", "text", {"type": "text", "text": ""}, text, events)
                case ReasoningDelta(text):
                    start = {"type": "thinking", "thinking": "", "signature": ""}
                    self._more("thinking", "thinking", start, text, events)
                case ToolCallStart(index, name):
                    call_id = self._message.calls[index].id
                    block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
                    self._open(block, events)
                case ToolArgumentsDelta(_, text):
                    events.append(self._delta({"type": "input_json_delta", "partial_json": text}))
                case ToolCallEnd(index, complete):
                    if complete:
                        arguments = self._message.calls[index].arguments
                        self.blocks[-1]["input"] = json.loads(arguments or "{}")
                    self._close(events)
        return events

    def end(self) -> list[Event]:
        """The events that close the last block."""
        events: list[Event] = []
        self._close(events)
        return events

    def _more(
        self, kind: str, key: str, start: dict[str, Any], text: str, events: list[Event]
    ) -> None:
        if not self._is_open or self.blocks[-1]["type"] != kind:
            self._open(start, events)
        self.blocks[-1][key] += text
        events.append(self._delta({"type": f"{kind}_delta", key: text}))

    def _open(self, block: dict[str, Any], events: list[Event]) -> None:
        self._close(events)
        self._is_open = True
        # A copy: the block grows before the event is written.
        events.append(self._event("content_block_start", content_block=dict(block), ahead=1))
        self.blocks.append(block)

    def _close(self, events: list[Event]) -> None:
        if self._is_open:
            events.append(self._event("content_block_stop"))
        self._is_open = False

    def _delta(self, delta: dict[str, Any]) -> Event:
        return self._event("content_block_delta", delta=delta)

    def _event(self, kind: str, *, ahead: int = 0, **fields: Any) -> Event:
        return {"type": kind, "index": len(self.blocks) - 1 + ahead, **fields}


def answer_head(message_id: str, model: str, num_prompt_tokens: int) -> dict[str, Any]:
    """The message before any output."""
    return {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": _usage(Usage(prompt_tokens=num_prompt_tokens)),
    }


def answer_end(choice: ChatChoice, *, max_tokens: int | None) -> dict[str, Any]:
    """The stop reason and usage of an answer. ``max_tokens`` is None where it was more
    than the context has room for."""
    reason = choice.finish_reason
    matched = choice.matched_stop
    stop_sequence = matched if reason == "stop" and isinstance(matched, str) else None
    if stop_sequence is not None:
        shown = "stop_sequence"
    elif reason == "length" and max_tokens is None:
        shown = "model_context_window_exceeded"
    else:
        shown = _STOP_REASONS.get(reason, "end_turn")
    return {
        "stop": {"stop_reason": shown, "stop_sequence": stop_sequence},
        "usage": _usage(choice.usage),
    }


def _usage(usage: Usage) -> dict[str, Any]:
    """Usage in Anthropic's shape, which counts cached prompt tokens separately; the counts of
    forced tokens are Ramet's own."""
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
        "forced_tokens": usage.forced_tokens,
        "completion_forced_tokens": usage.completion_forced_tokens,
    }

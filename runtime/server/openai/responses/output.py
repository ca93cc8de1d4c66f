"""Builds the output items of a response and their events in the documented order.

https://platform.openai.com/docs/api-reference/responses-streaming
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ramet.runtime.api.events import TokenInfo
from ramet.runtime.chat.choice import CollectedCall, CollectedMessage
from ramet.runtime.parsers import (
    ChatDelta,
    ContentDelta,
    ReasoningDelta,
    ToolArgumentsDelta,
    ToolCallEnd,
    ToolCallStart,
)
from ramet.runtime.server.calls.logprobs import chat_logprobs
from ramet.runtime.server.http.json_response import new_id

Event = dict[str, Any]
"""An event's data without its sequence number; its ``type`` is also the event's name."""


_CALLS = {
    "function_call": ("fc", "arguments", "function_call_arguments"),
    "custom_tool_call": ("ctc", "input", "custom_tool_call_input"),
}
"""By an item's type: the prefix of its id, the field of its text, and the text's events."""


class OutputItems:
    """Converts deltas to events; ``items`` is what the events add up to.

    Attributes:
        items: the output so far.
    """

    def __init__(self, message: CollectedMessage) -> None:
        self._message = message
        self._open: dict[str, Any] | None = None
        self._undecided: list[TokenInfo] = []
        self.items: list[dict[str, Any]] = []

    def feed(self, deltas: Iterable[ChatDelta], tokens: Iterable[TokenInfo] = ()) -> list[Event]:
        """Converts deltas to events.

        ``tokens`` are passed if log-probabilities are requested. Those whose text is held back
        count with the next delta; only those of text are shown.
        """
        events: list[Event] = []
        self._undecided += tokens
        for delta in deltas:
            match delta:
                case ContentDelta(text):
                    self._more_text(text, events)
                case ReasoningDelta(text):
                    self._more_reasoning(text, events)
                case ToolCallStart(index):
                    self._begin_call(self._message.calls[index], events)
                case ToolArgumentsDelta(_, text):
                    self._more_arguments(text, events)
                case ToolCallEnd(_, complete):
                    self._close(events, complete=complete)
            self._undecided = []
        return events

    def end(self, *, complete: bool) -> list[Event]:
        """Returns the events that close the last item; without any item, adds an empty text."""
        events: list[Event] = []
        if not self.items:
            self._begin_text(events)
        if self._undecided and self._open and self._open["type"] == "message":
            self._open["content"][0]["logprobs"] += chat_logprobs(self._undecided)
        self._close(events, complete=complete)
        return events

    def _more_text(self, text: str, events: list[Event]) -> None:
        if self._open is None or self._open["type"] != "message":
            self._close(events)
            self._begin_text(events)
        assert self._open is not None
        part = self._open["content"][0]
        logprobs = chat_logprobs(self._undecided)
        part["text"] += text
        part["logprobs"] += logprobs
        events.append(self._part_event("output_text.delta", delta=text, logprobs=logprobs))

    def _begin_text(self, events: list[Event]) -> None:
        item = {"id": new_id("msg", "_"), "type": "message", "role": "assistant"}
        part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        self._begin(item, part, events)

    def _more_reasoning(self, text: str, events: list[Event]) -> None:
        if self._open is None or self._open["type"] != "reasoning":
            self._close(events)
            item = {"id": new_id("rs", "_"), "type": "reasoning", "summary": []}
            self._begin(item, {"type": "reasoning_text", "text": ""}, events)
        assert self._open is not None
        self._open["content"][0]["text"] += text
        events.append(self._part_event("reasoning_text.delta", delta=text))

    def _begin_call(self, call: CollectedCall, events: list[Event]) -> None:
        self._close(events)
        kind = "custom_tool_call" if call.is_custom else "function_call"
        prefix, key, _ = _CALLS[kind]
        item = {"id": new_id(prefix, "_"), "type": kind, "call_id": call.id, "name": call.name}
        if call.namespace is not None:
            item["namespace"] = call.namespace
        self._add({**item, key: ""}, events)

    def _more_arguments(self, text: str, events: list[Event]) -> None:
        assert self._open is not None
        _, key, event = _CALLS[self._open["type"]]
        self._open[key] += text
        events.append(self._item_event(f"{event}.delta", delta=text))

    def _begin(self, item: dict[str, Any], part: dict[str, Any], events: list[Event]) -> None:
        """Adds an item that has one part."""
        self._add({**item, "content": []}, events)
        assert self._open is not None
        events.append(self._part_event("content_part.added", part=_copy(part)))
        self._open["content"] = [part]

    def _add(self, item: dict[str, Any], events: list[Event]) -> None:
        item["status"] = "in_progress"
        self._open = item
        self.items.append(item)
        events.append(self._event("output_item.added", item=_copy(item)))

    def _close(self, events: list[Event], *, complete: bool = True) -> None:
        item = self._open
        if item is None:
            return
        item["status"] = "completed" if complete else "incomplete"
        if item["type"] in _CALLS:
            _, key, event = _CALLS[item["type"]]
            named = {"name": item["name"]} if item["type"] == "function_call" else {}
            events.append(self._item_event(f"{event}.done", **named, **{key: item[key]}))
        else:
            part = item["content"][0]
            done = {key: part[key] for key in ("text", "logprobs") if key in part}
            events.append(self._part_event(f"{part['type']}.done", **done))
            events.append(self._part_event("content_part.done", part=part))
        events.append(self._event("output_item.done", item=item))
        self._open = None

    def _event(self, kind: str, **fields: Any) -> Event:
        return {"type": f"response.{kind}", "output_index": len(self.items) - 1, **fields}

    def _item_event(self, kind: str, **fields: Any) -> Event:
        return self._event(kind, item_id=self.items[-1]["id"], **fields)

    def _part_event(self, kind: str, **fields: Any) -> Event:
        return self._item_event(kind, content_index=0, **fields)


def _copy(value: dict[str, Any]) -> dict[str, Any]:
    """Copies an item, which may change before its event is written."""
    return {key: list(each) if isinstance(each, list) else each for key, each in value.items()}

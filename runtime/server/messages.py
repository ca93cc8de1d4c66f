"""A chat message as it grows: from a request's events to deltas, and from deltas to the whole.

The whole is made of the same deltas that a stream sends, so the two can't disagree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from ramet.runtime.events import (
    Event,
    Finished,
    FinishReason,
    PromptLogprobs,
    TextDelta,
    TokenInfo,
    Usage,
)

Delta = dict[str, Any]
"""What changed in a message: ``content``, ``reasoning_content`` or ``tool_calls``, as in OpenAI's
chunks."""


class MessageParser(Protocol):
    """Splits a model's text into the fields of a message. Any split of the text gives the same."""

    def feed(self, piece: str, *, final: bool = False) -> list[Delta]:
        """The deltas that are certain after ``piece``."""
        ...

    def finish_reason(self, reason: FinishReason) -> str:
        """OpenAI's reason for a text that ended for ``reason``."""
        ...


class PlainText:
    """All text is content."""

    def feed(self, piece: str, *, final: bool = False) -> list[Delta]:
        del final
        return [{"content": piece}] if piece else []

    def finish_reason(self, reason: FinishReason) -> str:
        return reason


class ChatChoice:
    """One choice of a chat call. ``finished`` holds its end once it has come."""

    def __init__(self, parser: MessageParser) -> None:
        self._parser = parser
        self.finished: Finished | None = None
        self.prompt_logprobs: PromptLogprobs | None = None

    def feed(self, events: Iterable[Event]) -> tuple[list[Delta], list[TokenInfo]]:
        """The deltas and the tokens of some events; text that came together is one piece."""
        text: list[str] = []
        tokens: list[TokenInfo] = []
        for event in events:
            if isinstance(event, TextDelta):
                text.append(event.text)
                tokens += event.tokens
            elif isinstance(event, Finished):
                self.finished = event
            elif isinstance(event, PromptLogprobs):
                self.prompt_logprobs = event
        return self._parser.feed("".join(text), final=self.finished is not None), tokens

    @property
    def usage(self) -> Usage:
        assert self.finished is not None
        return self.finished.usage

    @property
    def finish_reason(self) -> str:
        assert self.finished is not None
        return self._parser.finish_reason(self.finished.reason)


class MessageBuilder:
    """Joins deltas to a message."""

    def __init__(self) -> None:
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[dict[str, Any]] = []

    def add(self, deltas: Sequence[Delta]) -> None:
        """Takes the next deltas."""
        for delta in deltas:
            if "content" in delta:
                self._content.append(delta["content"])
            if "reasoning_content" in delta:
                self._reasoning.append(delta["reasoning_content"])
            for call in delta.get("tool_calls", ()):
                self._add_call(call)

    def _add_call(self, call: dict[str, Any]) -> None:
        if call["index"] == len(self._calls):
            self._calls.append(
                {"id": call["id"], "type": "function", "function": {"name": "", "arguments": ""}}
            )
        function = self._calls[call["index"]]["function"]
        for key, value in call["function"].items():
            function[key] += value

    def message(self) -> dict[str, Any]:
        """OpenAI's assistant message; ``content`` is null when there are only tool calls."""
        content = "".join(self._content)
        message: dict[str, Any] = {
            "role": "assistant",
            "content": content if content or not self._calls else None,
            "refusal": None,
        }
        if self._reasoning:
            message["reasoning_content"] = "".join(self._reasoning)
        if self._calls:
            message["tool_calls"] = self._calls
        return message

"""Accumulates a chat message: events to deltas, deltas to the whole.

The whole consists of the deltas that a stream sends, so the two can't disagree. Each API formats
both in its own shape.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

from ramet.runtime.api.events import (
    Event,
    Finished,
    FinishReason,
    PromptLogprobs,
    TextDelta,
    TokenInfo,
    Usage,
)
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.chat.offered_tools import OfferedTool
from ramet.runtime.parsers import (
    ChatDelta,
    ChatReader,
    ContentDelta,
    CustomInputReader,
    ReasoningDelta,
    ToolArgumentsDelta,
    ToolCallEnd,
    ToolCallStart,
    join_deltas,
)


@dataclass(slots=True)
class CollectedCall:
    """A tool call of a message; unless ``complete``, its arguments are truncated.

    ``name`` and ``namespace`` are the API's. ``arguments`` of a custom tool are its text.
    """

    id: str
    name: str
    namespace: str | None = None
    is_custom: bool = False
    arguments: str = ""
    complete: bool = False


@dataclass(slots=True)
class CollectedMessage:
    """The message so far."""

    content: str = ""
    reasoning: str = ""
    calls: list[CollectedCall] = field(default_factory=list)


class ChatChoice:
    """One choice of a chat call.

    Args:
        parser: reads the choice's text.
        shown: decides which tokens count as shown.
        tools: the call's tools by the names that the model writes.

    Attributes:
        message: the message so far.
        finished: the last event, once received.
        num_tokens, num_reasoning_tokens: tokens so far, and those inside reasoning.
    """

    def __init__(
        self,
        parser: ChatReader,
        shown: ShownTokens,
        tools: Mapping[str, OfferedTool] | None = None,
    ) -> None:
        self._parser = parser
        self._shown = shown
        self._tools = tools or {}
        self._custom_input: CustomInputReader | None = None  # of a custom tool's open call
        self._undecided = 0
        self.message = CollectedMessage()
        self.finished: Finished | None = None
        self.prompt_logprobs: PromptLogprobs | None = None
        self._last_delta: ChatDelta | None = None
        self.num_tokens = 0
        self.num_reasoning_tokens = 0

    def feed(self, events: Iterable[Event]) -> tuple[list[ChatDelta], list[TokenInfo]]:
        """Converts events to deltas, adjacent ones of a kind joined, and the shown tokens."""
        deltas: list[ChatDelta] = []
        tokens: list[TokenInfo] = []
        for event in events:
            if isinstance(event, TextDelta):
                new = self._parser.feed(event.text)
                self._count(len(event.tokens), new)
                deltas += new
                tokens += event.tokens
            elif isinstance(event, Finished):
                self.finished = event
                deltas += self._parser.feed("", final=True)
            elif isinstance(event, PromptLogprobs):
                self.prompt_logprobs = event
        if len(deltas) > 1:
            deltas = join_deltas(deltas)
        if self._tools:
            deltas = [shown for delta in deltas if (shown := self._as_offered(delta))]
        for delta in deltas:
            self._collect(delta)
            self._last_delta = delta
        return deltas, self._shown.select(tokens, self.finished)

    def _as_offered(self, delta: ChatDelta) -> ChatDelta | None:
        """A delta with custom tools' arguments as text; None if no text is certain yet."""
        if isinstance(delta, ToolCallStart):
            tool = self._tools.get(delta.name)
            self._custom_input = CustomInputReader() if tool and tool.is_custom else None
        elif isinstance(delta, ToolArgumentsDelta) and self._custom_input is not None:
            text = self._custom_input.feed(delta.text)
            return ToolArgumentsDelta(delta.index, text) if text else None
        return delta

    def _count(self, num_tokens: int, deltas: list[ChatDelta]) -> None:
        """Counts tokens; those whose text is held back count with the next delta."""
        self.num_tokens += num_tokens
        self._undecided += num_tokens
        if deltas:
            if isinstance(deltas[0], ReasoningDelta):
                self.num_reasoning_tokens += self._undecided
            self._undecided = 0

    def _collect(self, delta: ChatDelta) -> None:
        message = self.message
        match delta:
            case ContentDelta(text):
                message.content += text
            case ReasoningDelta(text):
                message.reasoning += text
            case ToolCallStart(_, name):
                message.calls.append(self._started_call(name))
            case ToolArgumentsDelta(index, text):
                message.calls[index].arguments += text
            case ToolCallEnd(index, complete):
                message.calls[index].complete = complete

    def _started_call(self, model_name: str) -> CollectedCall:
        call_id = f"call_{uuid.uuid4().hex[:24]}"
        tool = self._tools.get(model_name)
        if tool is None:
            return CollectedCall(call_id, model_name)
        return CollectedCall(call_id, tool.name, tool.namespace, tool.is_custom)

    @property
    def usage(self) -> Usage:
        """The usage of a finished choice."""
        assert self.finished is not None
        return self.finished.usage

    @property
    def matched_stop(self) -> str | int | None:
        """The stop string or stop token that ended the text."""
        return self.finished.matched_stop if self.finished else None

    @property
    def finish_reason(self) -> FinishReason | str:
        """``tool_calls`` if every call is complete, otherwise the engine's reason."""
        assert self.finished is not None
        calls = self.message.calls
        is_whole = self.finished.reason == "stop" or isinstance(self._last_delta, ToolCallEnd)
        if is_whole and calls and all(call.complete for call in calls):
            return "tool_calls"
        return self.finished.reason


class ShownTokens:
    """Filters out the token that ended the text: end-of-text or a stop token."""

    def __init__(self, params: SamplingParams, eos_ids: Set[int]) -> None:
        self._end_ids = eos_ids | set(params.stop_token_ids)
        self._include = params.include_stop_str_in_output
        self._held: list[TokenInfo] = []

    def select(self, tokens: list[TokenInfo], finished: Finished | None) -> list[TokenInfo]:
        """Returns the tokens to show; holds back one that may be the end until the next arrives."""
        if self._include or not (tokens or self._held):
            return tokens
        tokens = self._held + tokens
        self._held = []
        if tokens[-1].token_id not in self._end_ids:
            return tokens
        if finished is None:
            self._held = [tokens[-1]]
            return tokens[:-1]
        ended_by_it = finished.reason == "stop" and not isinstance(finished.matched_stop, str)
        return tokens[:-1] if ended_by_it else tokens

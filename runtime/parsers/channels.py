"""Reads an output in channels: gpt-oss's harmony format.

The output is a row of messages, each with a head that says what it is::

    <|channel|>analysis<|message|>...<|end|>
    <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{...}<|call|>
    <|start|>assistant<|channel|>final<|message|>...<|return|>

The prompt ends with ``<|start|>assistant``. What is in the channel ``analysis`` is reasoning; a
message to a function is a call of it, whichever channel it is in; everything else is text.

https://cookbook.openai.com/articles/openai-harmony
"""

from __future__ import annotations

import enum
import json
import re

from ramet.runtime.parsers.deltas import (
    ChatDelta,
    ContentDelta,
    ReasoningDelta,
    ToolArgumentsDelta,
    ToolCallEnd,
    ToolCallStart,
    join_deltas,
)
from ramet.runtime.parsers.json_call import JsonCallReader

_START, _CHANNEL, _MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
_ENDS = ("<|end|>", "<|return|>", "<|call|>")

MARKERS = (_START, _CHANNEL, _MESSAGE, *_ENDS)
"""Text that can't occur in a message's content."""

FINAL = f"{_CHANNEL}final{_MESSAGE}"
"""The head of an answer."""

PREAMBLE = f"{_CHANNEL}commentary{_MESSAGE}"
"""The head of text that comes before calls."""

_RECIPIENT = re.compile(r"\bto=([^\s<]+)")
_CHANNEL_NAME = re.compile(r"<\|channel\|>\s*(\w+)")
_FUNCTIONS = "functions."


class _State(enum.Enum):
    HEAD = enum.auto()
    TEXT = enum.auto()
    REASONING = enum.auto()
    CALL = enum.auto()
    AFTER_CALL = enum.auto()  # up to what ends its message


class ChannelParser:
    """Splits an output's channels into reasoning, calls and content.

    What has no head is content. Messages of one kind are distinguished by a line break.

    Args:
        has_tools: calls may be made; otherwise what is written to a function is content.
        is_answer_open: the prompt has begun an answer, so the output goes on inside it.
    """

    def __init__(self, *, has_tools: bool = False, is_answer_open: bool = False) -> None:
        self._has_tools = has_tools
        self._state = _State.TEXT if is_answer_open else _State.HEAD
        self._buffer = ""
        self._is_first = not is_answer_open
        self._reader: JsonCallReader | None = None
        self._name = ""
        self._arguments = ""
        self._written: set[_State] = set()  # kinds of text that have come
        self._owes_break = False
        self.num_calls = 0

    def feed(self, piece: str, *, final: bool = False) -> list[ChatDelta]:
        """The deltas that are certain after ``piece``; with ``final``, all that are left."""
        self._buffer += piece
        out: list[ChatDelta] = []
        while self._step(out, final):
            pass
        if final and self._state is _State.CALL:
            self._end_call(out)
        return join_deltas(out)

    def _step(self, out: list[ChatDelta], final: bool) -> bool:
        match self._state:
            case _State.HEAD:
                return self._read_head(final)
            case _State.CALL:
                return self._read_call(out)
            case _:
                return self._read_text(out, final)

    def _read_head(self, final: bool) -> bool:
        text = self._buffer.lstrip()
        if not text:
            return False
        if not _may_be_head(text, is_first=self._is_first):
            self._begin(_State.TEXT)
            return True
        head, found, rest = self._buffer.partition(_MESSAGE)
        if not found:
            if final:  # a head without a message says nothing
                self._buffer = ""
            return False
        self._buffer = rest
        self._is_first = False
        channel = _CHANNEL_NAME.search(head)
        recipient = _RECIPIENT.search(head)
        if recipient is not None and self._has_tools:
            self._name = recipient.group(1).removeprefix(_FUNCTIONS)
            self._begin_call()
        elif channel is not None and channel.group(1) == "analysis" and recipient is None:
            self._begin(_State.REASONING)
        else:
            self._begin(_State.TEXT)
        return True

    def _begin(self, state: _State) -> None:
        self._state = state
        self._is_first = False
        self._owes_break = state in self._written

    def _read_text(self, out: list[ChatDelta], final: bool) -> bool:
        text, found, self._buffer = _cut(self._buffer)
        if final and not found:
            text, self._buffer = text + self._buffer, ""
        if text and self._state is not _State.AFTER_CALL:
            shown = "\n" + text if self._owes_break else text
            is_reasoning = self._state is _State.REASONING
            out.append(ReasoningDelta(shown) if is_reasoning else ContentDelta(shown))
            self._owes_break = False
            self._written.add(self._state)
        if found:
            self._state = _State.HEAD
            if found in (_START, _CHANNEL):  # a head without an end before it
                self._buffer = found + self._buffer
        return bool(found)

    def _begin_call(self) -> None:
        self._state = _State.CALL
        self._arguments = ""
        self._reader = JsonCallReader(("arguments",), ends_with_arguments=True)
        self._reader.read(f'{{"name": {json.dumps(self._name)}, "arguments": ')

    def _read_call(self, out: list[ChatDelta]) -> bool:
        reader = self._reader
        assert reader is not None
        first = "{" if self._arguments else self._buffer.lstrip()[:1]
        if not self._buffer or not first:
            return False
        if first != "{":
            self._begin(_State.TEXT)  # no arguments: it is text after all
            return True
        self._buffer = reader.read(self._buffer)
        text = reader.take_arguments()
        if text:
            if not self._arguments:
                out.append(ToolCallStart(self.num_calls, self._name))
            self._arguments += text
            out.append(ToolArgumentsDelta(self.num_calls, text))
        if reader.is_done or reader.is_bad:
            self._end_call(out)
            self._state = _State.AFTER_CALL
            return True
        return False

    def _end_call(self, out: list[ChatDelta]) -> None:
        if not self._arguments:
            return
        out.append(ToolCallEnd(self.num_calls, _is_object(self._arguments)))
        self.num_calls += 1
        self._arguments = ""
        self._reader = None
        self._state = _State.AFTER_CALL


def _may_be_head(text: str, *, is_first: bool) -> bool:
    """Whether a text is, or may become, the head of a message."""
    begins = [_START, _CHANNEL, *(["to="] if is_first else [])]
    return any(text.startswith(begin) or begin.startswith(text) for begin in begins)


def _cut(text: str) -> tuple[str, str, str]:
    """(text before the first marker, the marker if it is whole, what is left to look at)."""
    at = min((i for marker in MARKERS if (i := text.find(marker)) >= 0), default=-1)
    if at >= 0:
        found = next(marker for marker in MARKERS if text.startswith(marker, at))
        return text[:at], found, text[at + len(found) :]
    longest = max(map(len, MARKERS)) - 1
    for length in range(min(longest, len(text)), 0, -1):
        if any(marker.startswith(text[-length:]) for marker in MARKERS):
            return text[:-length], "", text[-length:]
    return text, "", ""


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False

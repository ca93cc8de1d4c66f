"""Splits reasoning, which some models put between tags before they answer, from the answer."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Literal

from ramet.runtime.parsers.deltas import ChatDelta, ContentDelta, ReasoningDelta, cut_at_tag


@dataclass(frozen=True, slots=True)
class ReasoningFormat:
    """The texts around reasoning.

    Attributes:
        name: what the server's option takes.
        begin, end: the tags; in ``channels``, a message's head and its end.
        style: ``tags`` around the beginning of a text, or messages in ``channels``.
        gap: what stands between the tags and the reasoning.
        follow: what must stand behind the end tag before anything else.
    """

    name: str
    begin: str
    end: str
    style: Literal["tags", "channels"] = "tags"
    gap: str = "\n"
    follow: str = ""


REASONING_FORMATS = {
    each.name: each
    for each in (
        ReasoningFormat("think", "<think>", "</think>"),
        ReasoningFormat("mistral", "[THINK]", "[/THINK]"),
        ReasoningFormat(
            "harmony",
            "<|channel|>analysis<|message|>",
            "<|end|>",
            style="channels",
            gap="",
            follow="<|start|>assistant",
        ),
    )
}
"""By the name that the server's options use."""


def speaks_harmony(chat_template: str | None) -> bool:
    """Whether a template prints messages in channels."""
    markers = ("<|channel|>", "<|message|>", "<|start|>")
    return chat_template is not None and all(marker in chat_template for marker in markers)


def detect_reasoning_format(chat_template: str | None) -> ReasoningFormat | None:
    """The format whose tags the template has, or None."""
    if speaks_harmony(chat_template):
        return REASONING_FORMATS["harmony"]
    for each in REASONING_FORMATS.values():
        if chat_template is not None and each.begin in chat_template and each.end in chat_template:
            return each
    return None


class _State(enum.Enum):
    START = enum.auto()
    REASONING = enum.auto()
    ANSWER_START = enum.auto()
    ANSWER = enum.auto()


class ReasoningParser:
    """Reads an output whose reasoning, if any, comes first.

    White space around the reasoning belongs to neither part. Tags inside the answer are text.

    Args:
        reasoning: the tags.
        is_open: the prompt has opened the reasoning, so the output begins inside it.
    """

    def __init__(self, reasoning: ReasoningFormat, *, is_open: bool = False) -> None:
        self._format = reasoning
        self._state = _State.REASONING if is_open else _State.START
        self._buffer = ""
        self._has_reasoning = False

    def feed(self, piece: str, *, final: bool = False) -> list[ChatDelta]:
        """The deltas that are certain after ``piece``; with ``final``, all that are left."""
        self._buffer += piece
        out: list[ChatDelta] = []
        if self._state is _State.START:
            self._read_start(final)
        if self._state is _State.REASONING:
            self._read_reasoning(out, final)
        if self._state is _State.ANSWER_START:
            self._buffer = self._buffer.lstrip()
            if self._buffer:
                self._state = _State.ANSWER
        if self._state is _State.ANSWER and self._buffer:
            out.append(ContentDelta(self._buffer))
            self._buffer = ""
        return out

    def _read_start(self, final: bool) -> None:
        text, begin = self._buffer.lstrip(), self._format.begin
        if text.startswith(begin):
            self._buffer = text[len(begin) :]
            self._state = _State.REASONING
        elif final or not begin.startswith(text):
            self._state = _State.ANSWER

    def _read_reasoning(self, out: list[ChatDelta], final: bool) -> None:
        text, found, rest = cut_at_tag(self._buffer, self._format.end)
        if final and not found:
            text, rest = text + rest, ""
        if not self._has_reasoning:
            text = text.lstrip()
        stripped = text.rstrip()
        if stripped:
            out.append(ReasoningDelta(stripped))
            self._has_reasoning = True
        if found:
            self._buffer = rest
            self._state = _State.ANSWER_START
        else:
            self._buffer = text[len(stripped) :] + rest

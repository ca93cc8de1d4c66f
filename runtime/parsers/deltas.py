"""The deltas that chat parsers emit, in the order of the text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ContentDelta:
    """More of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of the reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallStart:
    """Tool call number ``index`` begins; indices count from 0."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class ToolArgumentsDelta:
    """More of a tool call's arguments, which join to JSON text."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallEnd:
    """A tool call ends. Unless ``complete``, it was cut short and its arguments are no JSON."""

    index: int
    complete: bool


ChatDelta = ContentDelta | ReasoningDelta | ToolCallStart | ToolArgumentsDelta | ToolCallEnd


def join_deltas(deltas: Iterable[ChatDelta]) -> list[ChatDelta]:
    """Joins neighbouring deltas of one kind: the result is equal for any split of a text."""
    joined: list[ChatDelta] = []
    for delta in deltas:
        last = joined[-1] if joined else None
        if isinstance(delta, ContentDelta) and isinstance(last, ContentDelta):
            joined[-1] = ContentDelta(last.text + delta.text)
        elif isinstance(delta, ReasoningDelta) and isinstance(last, ReasoningDelta):
            joined[-1] = ReasoningDelta(last.text + delta.text)
        elif isinstance(delta, ToolArgumentsDelta) and isinstance(last, ToolArgumentsDelta):
            joined[-1] = ToolArgumentsDelta(last.index, last.text + delta.text)
        else:
            joined.append(delta)
    return joined


def cut_at_tag(text: str, tag: str) -> tuple[str, bool, str]:
    """(text before the tag, whether the whole tag is there, what is left to look at).

    Without the whole tag, what is left is the end of ``text`` that could still become it.
    """
    before, found, after = text.partition(tag)
    if found:
        return before, True, after
    for length in range(min(len(tag) - 1, len(text)), 0, -1):
        if tag.startswith(text[-length:]):
            return text[:-length], False, text[-length:]
    return text, False, ""


def cut_at_tags(text: str, tags: Sequence[str]) -> tuple[str, str | None, str]:
    """``cut_at_tag`` for the first of several tags, which is named; None: none is there."""
    places = [(place, tag) for tag in tags if (place := text.find(tag)) >= 0]
    before, _, rest = min((cut_at_tag(text, tag) for tag in tags), key=lambda cut: len(cut[0]))
    if not places or len(before) < min(places)[0]:
        return before, None, text[len(before) :]
    place, tag = min(places)
    return before, tag, rest

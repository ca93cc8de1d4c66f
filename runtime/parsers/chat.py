"""Reads a chat model's output: reasoning, tool calls and content."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from ramet.runtime.parsers.deltas import ChatDelta, ContentDelta, join_deltas
from ramet.runtime.parsers.reasoning import ReasoningFormat, ReasoningParser
from ramet.runtime.parsers.tool_calls import ToolCallParser
from ramet.runtime.parsers.tool_formats import ToolFormat


class ChatReader(Protocol):
    """Parses a chat model's output incrementally."""

    def feed(self, piece: str, *, final: bool = False) -> list[ChatDelta]:
        """The deltas that are certain after ``piece``; with ``final``, all that are left."""
        ...


class ChatParser:
    """Splits the reasoning off, then reads what is left for tool calls.

    Args:
        reasoning: the reasoning's tags, or None for a model without.
        is_reasoning_open: the prompt has opened the reasoning.
        tools: how tool calls are written, or None where none may be made: then their text is
            content.
        schemas: the parameters' schema of each tool, by its name.
    """

    def __init__(
        self,
        *,
        reasoning: ReasoningFormat | None = None,
        is_reasoning_open: bool = False,
        tools: ToolFormat | None = None,
        schemas: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self._reasoning = (
            None if reasoning is None else ReasoningParser(reasoning, is_open=is_reasoning_open)
        )
        self._tools = None if tools is None else ToolCallParser(tools, schemas)

    def feed(self, piece: str, *, final: bool = False) -> list[ChatDelta]:
        """The deltas that are certain after ``piece``; with ``final``, all that are left."""
        if self._reasoning is not None:
            deltas = self._reasoning.feed(piece, final=final)
        else:
            deltas = [ContentDelta(piece)] if piece else []
        if self._tools is None:
            return deltas
        out: list[ChatDelta] = []
        for delta in deltas:
            out += self._tools.feed(delta.text) if isinstance(delta, ContentDelta) else [delta]
        if final:
            out += self._tools.feed("", final=True)
        return join_deltas(out)

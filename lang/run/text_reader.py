"""Streams a run's text: of one variable, or of the whole first state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ramet.lang.base.errors import UnknownNameError
from ramet.lang.graph.nodes import CALL_KINDS, Text
from ramet.lang.run.events import NodeAdded, NodeFinished, RunEnded, RunEvent, TextPiece
from ramet.lang.run.outcomes import Outcomes
from ramet.lang.run.prompts import render


class TextReader:
    """Extracts the text of one variable, or of the first state, from a run's events."""

    def __init__(self, outcomes: Outcomes, name: str | None) -> None:
        self._outcomes = outcomes
        self._name = name
        self._waiting: list[Any] = []  # nodes of the first state whose text isn't out yet
        self._held: dict[str, list[str]] = {}  # pieces of calls that aren't first in line
        self._finished: set[str] = set()
        self._is_known = name is None

    def feed(self, event: RunEvent) -> Iterator[str]:
        if isinstance(event, RunEnded):
            if event.error is not None:
                raise event.error
            if not self._is_known:
                raise UnknownNameError(f"the run has no variable {self._name!r}")
            return
        if self._name is not None:
            self._is_known |= getattr(event.node, "name", "") == self._name
            if isinstance(event, TextPiece) and getattr(event.node, "name", "") == self._name:
                yield event.text
            return
        node = event.node
        if isinstance(event, NodeAdded):
            if "." not in node.id and isinstance(node, (Text, *CALL_KINDS)):
                self._waiting.append(node)
        elif isinstance(event, TextPiece):
            self._held.setdefault(node.id, []).append(event.text)
        elif isinstance(event, NodeFinished):
            self._finished.add(node.id)
        yield from self._ready()

    def _ready(self) -> Iterator[str]:
        while self._waiting:
            node = self._waiting[0]
            if isinstance(node, Text):
                if any(not self._outcomes.is_settled(ref.node_id) for ref in node.refs()):
                    return
                yield render(node.parts, self._outcomes.text_of)
            else:
                yield from self._held.pop(node.id, ())
                if node.id not in self._finished:
                    return
            self._waiting.pop(0)

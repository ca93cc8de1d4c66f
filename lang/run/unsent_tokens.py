"""Counts the tokens that a run has yet to send, in the nodes known so far."""

from __future__ import annotations

from ramet.lang.graph.graph import RequestGraph
from ramet.lang.graph.nodes import Gen, Node, Select, Text
from ramet.lang.graph.references import Template
from ramet.runtime.api.request import LIKELY_OUTPUT_LEN

_BYTES_A_TOKEN = 4
_LIKELY_VALUE_LEN = 16
"""Tokens of a value in a text."""


class UnsentTokens:
    """An estimate from text lengths: graphs are made without a tokenizer."""

    def __init__(self, graph: RequestGraph) -> None:
        self._graph = graph
        self._unsent: dict[str, int] = {}
        self.num_tokens = 0

    def add(self, node: Node) -> None:
        """Counts a new node."""
        size = _size(node)
        if size:
            self._unsent[node.id] = size
            self.num_tokens += size

    def send(self, node: Gen | Select) -> None:
        """Subtracts a call that is sent, and all that it follows."""
        self.num_tokens -= self._unsent.pop(node.id, 0)
        for before in self._graph.back_from(node.parent):
            if isinstance(before, Gen | Select):
                return  # it was sent before, with all that it follows
            self.num_tokens -= self._unsent.pop(before.id, 0)

    def drop(self, node_id: str) -> None:
        """Subtracts a call that will never be sent."""
        self.num_tokens -= self._unsent.pop(node_id, 0)


def _size(node: Node) -> int:
    if isinstance(node, Text):
        return _text_size(node.parts)
    if isinstance(node, Gen):
        return min(node.params.max_tokens or LIKELY_OUTPUT_LEN, LIKELY_OUTPUT_LEN)
    if isinstance(node, Select):
        return max(map(_text_size, node.choices), default=0)
    return 0


def _text_size(parts: Template) -> int:
    return sum(
        -(-len(part.encode()) // _BYTES_A_TOKEN) if isinstance(part, str) else _LIKELY_VALUE_LEN
        for part in parts
    )

"""The RequestGraph: what a run of a program becomes."""

from __future__ import annotations

import json
from html import escape
from typing import Any

from ramet.lang.base.errors import GraphError
from ramet.lang.graph.checks import check_graph
from ramet.lang.graph.from_json import read_graph
from ramet.lang.graph.node_graph import MAX_NODES, NodeGraph
from ramet.lang.graph.nodes import Node
from ramet.lang.graph.to_json import graph_to_json
from ramet.lang.graph.views import mermaid, tree


class RequestGraph(NodeGraph):
    """A ``NodeGraph`` that can be checked, drawn, written as JSON and read from it."""

    def validate(self) -> None:
        """Checks edges, cycles, turns and names of a graph that came from elsewhere.

        Raises:
            GraphError: names the node at fault.
        """
        check_graph(self)

    @classmethod
    def from_nodes(cls, name: str, nodes: list[Node]) -> RequestGraph:
        """A graph from nodes in any order, validated."""
        if len(nodes) > MAX_NODES:
            raise GraphError(f"more than {MAX_NODES} nodes")
        graph = cls(name)
        graph.load(nodes)
        graph.validate()
        return graph

    def tree(self) -> str:
        """The graph as an indented tree, a line a call."""
        return tree(self)

    def mermaid(self) -> str:
        """The graph as a Mermaid flowchart."""
        return mermaid(self)

    def json(self) -> str:
        """``to_json`` as text."""
        return json.dumps(self.to_json(), indent=2, ensure_ascii=False)

    def to_json(self) -> dict[str, Any]:
        """The graph as JSON data; ``RequestGraph.from_json`` reads it."""
        return graph_to_json(self)

    @classmethod
    def from_json(cls, data: Any, *, max_nodes: int = MAX_NODES) -> RequestGraph:
        """Reads and validates what ``to_json`` gave.

        Raises:
            GraphError: data of another shape, a cycle, a dangling edge, a duplicate name, more than
                ``max_nodes`` nodes; its ``param`` is the path of what is wrong.
        """
        graph = cls()
        read_graph(data, graph, max_nodes=max_nodes)
        return graph

    def __str__(self) -> str:
        return self.tree()

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.tree())}</pre>"

"""The nodes of a RequestGraph and the edges between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ramet.lang.base.errors import GraphError
from ramet.lang.graph.nodes import CALL_KINDS, Gen, Join, Node, Select, Text

MAX_NODES = 100_000
"""A run with more nodes than this is a program that doesn't end."""


@dataclass(frozen=True, slots=True)
class OpenEnd:
    """Where a dry run had to stop: the program read a value, or ran another program.

    ``where`` is the ``file:line`` that did; ``node_id`` is the value, empty for another program.
    """

    branch: str
    node_id: str
    where: str


class NodeGraph:
    """Nodes in the order in which the program made them, and the edges between them.

    There are two kinds of edge: a node *follows* its ``parent``, whose text is part of its prompt,
    and *refers* to nodes whose values stand in its texts or arguments.
    """

    def __init__(self, name: str = "program") -> None:
        self.name = name
        self.open_ends: list[OpenEnd] = []
        self._nodes: dict[str, Node] = {}
        self._children: dict[str, list[str]] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(list(self._nodes.values()))  # a copy: the program may still add to it

    def __contains__(self, node_id: str) -> bool:
        return node_id in self._nodes

    def __getitem__(self, node_id: str) -> Node:
        try:
            return self._nodes[node_id]
        except KeyError:
            raise GraphError(f"no node {node_id!r} in the graph of {self.name!r}") from None

    @property
    def is_complete(self) -> bool:
        """Whether the graph holds all that the program does, for any output of the model."""
        return not self.open_ends

    def reason_of(self, end: OpenEnd) -> str:
        """Why the graph ends there."""
        return f"reads {self[end.node_id].label!r}" if end.node_id else "runs another program"

    def add(self, node: Node) -> None:
        """Appends a node; what it follows and refers to must be there already."""
        if len(self._nodes) >= MAX_NODES:
            raise GraphError(f"the program has made {MAX_NODES} nodes; does its loop end?")
        if node.id in self._nodes:
            raise GraphError(f"two nodes have the id {node.id!r}")
        for needed in self.edges(node):
            if needed not in self._nodes:
                raise GraphError(f"node {node.id!r} needs {needed!r}, which doesn't exist")
        self._nodes[node.id] = node
        if node.parent is not None:
            self._children.setdefault(node.parent, []).append(node.id)

    def children(self, node_id: str) -> list[Node]:
        """The nodes that follow a node directly; several only after a Fork."""
        return [self._nodes[child] for child in self._children.get(node_id, ())]

    def chain(self, node_id: str | None) -> list[Node]:
        """The nodes of a state from the run's first to ``node_id``, over its forks."""
        nodes = list(self.back_from(node_id))
        nodes.reverse()
        return nodes

    def back_from(self, node_id: str | None) -> Iterator[Node]:
        """The nodes of a state from ``node_id`` back to the run's first."""
        while node_id is not None:
            node = self[node_id]
            yield node
            node_id = node.parent

    def calls(self) -> list[Gen | Select]:
        """The nodes that the model answers."""
        return [node for node in self if isinstance(node, Gen | Select)]

    def needs(self, node_id: str) -> frozenset[str]:
        """The nodes whose values a node waits for: no more than it takes to know the rest.

        For a call these are the last call of its state and whatever the texts after that refer
        to; what comes earlier that last call has waited for already.
        """
        node = self[node_id]
        needed = {ref.node_id for ref in node.refs()}
        if isinstance(node, CALL_KINDS):
            for earlier in self.back_from(node.parent):
                if isinstance(earlier, CALL_KINDS):
                    needed.add(earlier.id)
                    break
                if isinstance(earlier, Text):
                    needed.update(ref.node_id for ref in earlier.refs())
        return frozenset(needed)

    def previous_call(self, node: Node) -> str | None:
        """The last call before a node in its state."""
        for earlier in self.back_from(node.parent):
            if isinstance(earlier, CALL_KINDS):
                return earlier.id
        return None

    def continues_turn(self, node: Gen | Select) -> bool:
        """Whether a call continues a chat turn that has text already."""
        for earlier in self.back_from(node.parent):
            if isinstance(earlier, Gen | Select | Text):
                return node.role is not None and earlier.turn == node.turn
        return False

    def branch_of(self, node_id: str) -> str:
        """The id of the branch that a node is in: ``""`` is the run's first state."""
        return node_id.rpartition(".")[0]

    def set_inputs(self, join_id: str, inputs: tuple[str, ...]) -> None:
        """Records which nodes' values a branch's result contains."""
        node = self[join_id]
        if isinstance(node, Join):
            self._nodes[join_id] = replace(node, inputs=inputs)

    def load(self, nodes: list[Node]) -> None:
        """Appends nodes in any order; edges are not checked."""
        for node in nodes:
            if node.id in self._nodes:
                raise GraphError(f"two nodes have the id {node.id!r}", node_id=node.id)
            self._nodes[node.id] = node
        for node in nodes:
            if node.parent is not None:
                self._children.setdefault(node.parent, []).append(node.id)

    @staticmethod
    def edges(node: Node) -> list[str]:
        """The nodes that a node follows or refers to."""
        edges = [ref.node_id for ref in node.refs()]
        if node.parent is not None:
            edges.append(node.parent)
        return edges

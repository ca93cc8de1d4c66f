"""Validates a graph from another process before it runs, in linear time."""

from __future__ import annotations

from ramet.lang.base.errors import GraphError
from ramet.lang.graph.node_graph import NodeGraph
from ramet.lang.graph.nodes import CALL_KINDS, Fork, Gen, Join, Node, Select, Text


def check_graph(graph: NodeGraph) -> None:
    """Checks edges, cycles, forks, turns and names.

    Raises:
        GraphError: names the node at fault.
    """
    _check_edges(graph)
    _check_cycles(graph)
    for node in graph:
        if node.parent is None or isinstance(graph[node.parent], Fork):
            continue
        if len(graph.children(node.parent)) > 1:
            raise GraphError(
                f"node {node.parent!r} is followed by several nodes and is not a fork",
                node_id=node.parent,
            )
    _check_states(graph)


def _check_edges(graph: NodeGraph) -> None:
    for node in graph:
        for needed in graph.edges(node):
            if needed not in graph:
                raise GraphError(f"node {node.id!r}: there is no node {needed!r}", node_id=node.id)
        for ref in node.refs():
            if isinstance(graph[ref.node_id], Text | Fork):
                raise GraphError(
                    f"node {node.id!r} refers to {ref.node_id!r}, which has no value",
                    node_id=node.id,
                )


def _check_cycles(graph: NodeGraph) -> None:
    visiting: set[str] = set()
    done: set[str] = set()
    for first in graph:
        stack = [(first.id, False)]
        while stack:
            node_id, leaving = stack.pop()
            if leaving:
                visiting.discard(node_id)
                done.add(node_id)
            elif node_id not in done:
                if node_id in visiting:
                    raise GraphError(f"node {node_id!r} is part of a cycle", node_id=node_id)
                visiting.add(node_id)
                stack.append((node_id, True))
                for needed in graph.edges(graph[node_id]):
                    if needed in visiting:
                        raise GraphError(
                            f"nodes {node_id!r} and {needed!r} are part of a cycle",
                            node_id=node_id,
                        )
                    if needed not in done:
                        stack.append((needed, False))


def _check_states(graph: NodeGraph) -> None:
    """Walks each state once, branches after what they share, with the names set so far."""
    setters: dict[str, str] = {}
    stack: list[tuple[Node, Node | None, bool]] = [
        (node, None, False) for node in graph if node.parent is None
    ]
    while stack:
        node, before, leaving = stack.pop()
        name = getattr(node, "name", "")
        if leaving:
            if setters.get(name) == node.id:
                del setters[name]
            continue
        if name and not isinstance(node, Join) and name in setters:
            raise GraphError(
                f"nodes {setters[name]!r} and {node.id!r} both set {name!r}", node_id=node.id
            )
        if name and name not in setters:
            setters[name] = node.id
            stack.append((node, before, True))
        if isinstance(node, Text | Gen | Select):
            _check_turn(node, before)
            before = node
        stack.extend((child, before, False) for child in graph.children(node.id))


def _check_turn(node: Node, before: Node | None) -> None:
    if isinstance(node, CALL_KINDS) and node.role not in (None, "assistant"):
        raise GraphError(
            f"node {node.id!r}: the model can't write a {node.role} turn, only the assistant's",
            node_id=node.id,
        )
    if before is None:
        return
    if (before.role is None) != (node.role is None):
        raise GraphError(
            f"nodes {before.id!r} and {node.id!r}: a state holds raw text or chat turns, not both",
            node_id=node.id,
        )
    if before.turn == node.turn and before.role != node.role:
        raise GraphError(
            f"nodes {before.id!r} and {node.id!r} have one turn and two roles; count turn up",
            node_id=node.id,
        )

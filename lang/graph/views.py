"""Human-readable views of a RequestGraph: a tree of lines, and a Mermaid flowchart."""

from __future__ import annotations

from ramet.lang.graph.node_graph import NodeGraph
from ramet.lang.graph.nodes import Fork, Gen, Join, Node, Select, Text, ToolCall
from ramet.lang.graph.references import Ref, Template

MAX_TEXT_LEN = 48


def tree(graph: NodeGraph) -> str:
    """An indented tree: a line a node, a level a fork; what a node refers to in brackets."""
    lines = [graph.name]
    firsts = [node for node in graph if node.parent is None]
    for first in firsts:
        _draw(graph, first, "", lines)
    lines.extend(
        f"? unknown from here: {end.where} {graph.reason_of(end)}" for end in graph.open_ends
    )
    return "\n".join(lines)


def _draw(graph: NodeGraph, node: Node, indent: str, lines: list[str]) -> None:
    # A loop along a state and recursion only into branches, so long programs don't nest.
    current: Node | None = node
    while current is not None:
        children = graph.children(current.id)
        splits = isinstance(current, Fork)
        after: Node | None = children[0] if children else None
        if splits:
            after = _after_fork(graph, current, children)
        branches = [child for child in children if child is not after] if splits else []
        mark = "├─ " if after is not None else "└─ "
        lines.append(f"{indent}{mark}{describe(graph, current)}")
        inner = indent + ("│  " if after is not None else "   ")
        for branch in branches:
            lines.append(f"{inner}branch {graph.branch_of(branch.id).rpartition('.')[2]}")
            _draw(graph, branch, inner, lines)
        current = after


def _after_fork(graph: NodeGraph, fork: Node, children: list[Node]) -> Node | None:
    branch = graph.branch_of(fork.id)
    return next((child for child in children if graph.branch_of(child.id) == branch), None)


def describe(graph: NodeGraph, node: Node) -> str:
    """A node in one line."""
    uses = [graph[ref.node_id].label for ref in node.refs()]
    needs = f"  [{', '.join(dict.fromkeys(uses))}]" if uses else ""
    role = f"{node.role}: " if node.role and isinstance(node, Text) else ""
    if isinstance(node, Text):
        return f"{role}{_shortened(graph, node.parts)}{needs}"
    if isinstance(node, Gen):
        returns = "" if node.returns == "str" else f": {node.returns}"
        constraint = f" ({node.constraint.kind})" if node.constraint is not None else ""
        return f"gen {node.name or '·'}{returns}{constraint}"
    if isinstance(node, Select):
        return f"select {node.name or '·'} of {len(node.choices)}{needs}"
    if isinstance(node, ToolCall):
        return f"tool {node.tool}{needs}"
    if isinstance(node, Fork):
        return f"fork {node.num_branches}"
    if isinstance(node, Join) and node.of != "values":
        return f"{node.of} {node.label}{needs}"
    return f"join {node.label}{needs}"


def _shortened(graph: NodeGraph, parts: Template) -> str:
    text = "".join(
        f"{{{graph[part.node_id].label}}}" if isinstance(part, Ref) else part for part in parts
    )
    text = " ".join(text.split())
    return repr(text if len(text) <= MAX_TEXT_LEN else text[: MAX_TEXT_LEN - 1] + "…")


def mermaid(graph: NodeGraph) -> str:
    """A Mermaid flowchart: thick arrows for prompts, dotted ones for values."""
    lines = ["flowchart TD"]
    for node in graph:
        left, right = _SHAPES[type(node)]
        label = describe(graph, node).replace('"', "#quot;").replace("<", "#lt;")
        lines.append(f'    n{_key(node.id)}{left}"{label}"{right}')
    for node in graph:
        if node.parent is not None:
            lines.append(f"    n{_key(node.parent)} --> n{_key(node.id)}")
        needs = dict.fromkeys(ref.node_id for ref in node.refs())
        lines.extend(f"    n{_key(needed)} -.-> n{_key(node.id)}" for needed in needs)
    for number, end in enumerate(graph.open_ends):
        lines.append(f'    q{number}{{"? {end.where}"}}')
        if end.node_id:
            lines.append(f"    n{_key(end.node_id)} -.-> q{number}")
    return "\n".join(lines)


def _key(node_id: str) -> str:
    return node_id.replace(".", "_")


_SHAPES: dict[type[Node], tuple[str, str]] = {
    Text: ("[", "]"),
    Gen: ("([", "])"),
    Select: ("([", "])"),
    ToolCall: ("[[", "]]"),
    Fork: ("{{", "}}"),
    Join: ("{{", "}}"),
}

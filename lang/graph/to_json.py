"""A RequestGraph as JSON data.

``{"name": ..., "nodes": [{"kind": ..., "id": ..., ...}], "open_ends": [...]}``. References are
objects with ``node_id`` and ``spec``; inside a ToolCall's arguments, where any data may stand,
``{"$ref": ...}`` and ``{"$text": [...]}``, and a mapping with such keys of its own is spelled
``{"$map": [[key, value], ...]}``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from pydantic_core import to_jsonable_python

from ramet.lang.graph.node_graph import NodeGraph
from ramet.lang.graph.nodes import Node, TextWithRefs
from ramet.lang.graph.references import Ref


def graph_to_json(graph: NodeGraph) -> dict[str, Any]:
    """The graph as data that ``json.dumps`` takes."""
    return {
        "name": graph.name,
        "nodes": [_node_to_json(node) for node in graph],
        "open_ends": [dataclasses.asdict(end) for end in graph.open_ends],
    }


def _node_to_json(node: Node) -> dict[str, Any]:
    fields = {"kind": node.kind}
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        if field.name == "arguments":
            value = _data_to_json(value)
        fields[field.name] = to_jsonable_python(value)
    return fields


def _data_to_json(value: Any) -> Any:
    if isinstance(value, Ref):
        return {"$ref": value.node_id, "spec": value.spec}
    if isinstance(value, TextWithRefs):
        return {"$text": [p if isinstance(p, str) else _data_to_json(p) for p in value.parts]}
    if isinstance(value, Mapping):
        if any(str(key).startswith("$") for key in value):
            return {"$map": [[key, _data_to_json(item)] for key, item in value.items()]}
        return {key: _data_to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_data_to_json(item) for item in value]
    return to_jsonable_python(value, fallback=str)

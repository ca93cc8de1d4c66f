"""A RequestGraph as JSON data, and back.

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

from ramet.lang.base.errors import GraphError
from ramet.lang.graph.from_json import near, read_node, wrong
from ramet.lang.graph.graph import MAX_NODES, OpenEnd, RequestGraph
from ramet.lang.graph.nodes import Node, TextWithRefs
from ramet.lang.graph.references import Ref

_FIELDS = {"name": str, "nodes": list, "open_ends": list}


def to_json(graph: RequestGraph) -> dict[str, Any]:
    """The graph as data that ``json.dumps`` takes."""
    return {
        "name": graph.name,
        "nodes": [_node_to_json(node) for node in graph],
        "open_ends": [dataclasses.asdict(end) for end in graph.open_ends],
    }


def from_json(data: Any, *, max_nodes: int = MAX_NODES) -> RequestGraph:
    """Reads and validates a graph.

    Raises:
        GraphError: data of another shape, a cycle, a dangling edge, a duplicate name, more than
            ``max_nodes`` nodes; its ``param`` is the path of what is wrong.
    """
    if not isinstance(data, Mapping):
        raise wrong("", "a graph is an object with a list of nodes")
    for name in data:
        if name not in _FIELDS:
            hint = near(name, _FIELDS)
            raise wrong(str(name), f"a graph has no field {name!r}{hint}")
    items = data.get("nodes")
    if not isinstance(items, list):
        raise wrong("nodes", "a graph is an object with a list of nodes")
    if len(items) > max_nodes:
        raise wrong("nodes", f"{len(items)} nodes are more than the limit of {max_nodes}")
    name = data.get("name", "program")
    if not isinstance(name, str):
        raise wrong("name", "a graph's name is a text")
    try:
        nodes = [read_node(item, f"nodes[{index}]") for index, item in enumerate(items)]
        graph = RequestGraph.from_nodes(name, nodes)
        graph.open_ends = [OpenEnd(**end) for end in data.get("open_ends") or ()]
    except RecursionError:
        raise wrong("nodes", "the graph nests too deep") from None
    except TypeError as error:
        raise wrong("open_ends", f"a bad open end: {error}") from None
    except GraphError as error:
        if error.param is None and error.node_id:
            ids = [item.get("id") for item in items]
            last = len(ids) - 1 - ids[::-1].index(error.node_id)
            error.param = f"nodes[{last}]"
        raise
    return graph


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

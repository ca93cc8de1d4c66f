"""A RequestGraph as JSON data, and back.

``{"name": ..., "nodes": [{"kind": ..., "id": ..., ...}], "open_ends": [...]}``. References are
objects with ``node_id`` and ``spec``; inside a ToolCall's arguments, where any data may stand,
``{"$ref": ...}`` and ``{"$text": [...]}``, and a mapping with such keys of its own is spelled
``{"$map": [[key, value], ...]}``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from ramet.lang.errors import GraphError
from ramet.lang.graph import OpenEnd, RequestGraph
from ramet.lang.nodes import Fork, Gen, Join, Node, Select, Text, TextWithRefs, ToolCall
from ramet.lang.references import Ref
from ramet.runtime.errors import RametError

_KINDS: dict[str, type[Node]] = {
    node_type.kind: node_type for node_type in (Text, Gen, Select, ToolCall, Fork, Join)
}


def to_json(graph: RequestGraph) -> dict[str, Any]:
    """The graph as data that ``json.dumps`` takes."""
    return {
        "name": graph.name,
        "nodes": [_node_to_json(node) for node in graph],
        "open_ends": [dataclasses.asdict(end) for end in graph.open_ends],
    }


def from_json(data: Any) -> RequestGraph:
    """Reads and validates a graph.

    Raises:
        GraphError: data of another shape, a cycle, a dangling edge, a duplicate name.
    """
    if not isinstance(data, Mapping) or not isinstance(data.get("nodes"), list):
        raise GraphError("a graph is an object with a list of nodes")
    nodes = [_node_from_json(item) for item in data["nodes"]]
    graph = RequestGraph.from_nodes(str(data.get("name", "program")), nodes)
    try:
        graph.open_ends = [OpenEnd(**end) for end in data.get("open_ends", [])]
    except TypeError as error:
        raise GraphError(f"a bad open end: {error}") from None
    return graph


def _node_to_json(node: Node) -> dict[str, Any]:
    fields = {"kind": node.kind}
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        if field.name == "arguments":
            value = _data_to_json(value)
        fields[field.name] = to_jsonable_python(value)
    return fields


def _node_from_json(item: Any) -> Node:
    if not isinstance(item, Mapping) or item.get("kind") not in _KINDS:
        raise GraphError(f"not a node: {str(item)[:80]}")
    fields = {name: value for name, value in item.items() if name != "kind"}
    kind: str = item["kind"]
    node_type = _KINDS[kind]
    if "arguments" in fields:
        fields["arguments"] = _data_from_json(fields["arguments"])
    known = {field.name for field in dataclasses.fields(node_type)}
    for name in fields:
        if name not in known:
            raise GraphError(f"a {node_type.kind} node has no field {name!r}")
    try:
        node: Node = _adapter(kind).validate_python(fields)
    except (ValidationError, RametError) as error:
        raise GraphError(f"a bad {node_type.kind} node {fields.get('id')!r}: {error}") from error
    return node


@cache
def _adapter(kind: str) -> TypeAdapter[Any]:
    return TypeAdapter(_KINDS[kind])


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


def _data_from_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        if "$ref" in value:
            return Ref(str(value["$ref"]), str(value.get("spec", "")))
        if "$text" in value and isinstance(value["$text"], list):
            return TextWithRefs(tuple(_data_from_json(part) for part in value["$text"]))
        if "$map" in value and isinstance(value["$map"], list):
            return {key: _data_from_json(item) for key, item in value["$map"]}
        return {key: _data_from_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_data_from_json(item) for item in value]
    return value

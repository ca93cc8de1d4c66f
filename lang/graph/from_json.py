"""A graph from JSON data (see ``to_json.py``), each field checked, each fault named by its path."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping
from typing import Any, get_args

from ramet.grammars.constraints import Constraint
from ramet.grammars.constraints.serialize import constraint_from_json
from ramet.grammars.errors import ConstraintError
from ramet.lang.base.errors import GraphError
from ramet.lang.graph.checks import check_graph
from ramet.lang.graph.node_graph import MAX_NODES, NodeGraph, OpenEnd
from ramet.lang.graph.nodes import (
    Fork,
    Gen,
    Join,
    JoinKind,
    Node,
    Role,
    Select,
    SelectMethod,
    Text,
    TextWithRefs,
    ToolCall,
)
from ramet.lang.graph.references import Ref, Template
from ramet.runtime.api.errors import RametError
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.paths import field_path

_FIELDS = {"name": str, "nodes": list, "open_ends": list}

Reader = Callable[[Any, str], Any]
"""Takes a field's JSON and its path; returns what the node holds, or raises GraphError."""

NODE_KINDS: dict[str, type[Node]] = {
    node_type.kind: node_type for node_type in (Text, Gen, Select, ToolCall, Fork, Join)
}


def read_graph(data: Any, graph: NodeGraph, *, max_nodes: int = MAX_NODES) -> None:
    """Reads a graph into an empty one, and checks it.

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
        graph.name = name
        graph.load(nodes)
        check_graph(graph)
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


def read_node(item: Any, path: str) -> Node:
    """One node of a graph; ``path`` is its place, such as ``nodes[3]``.

    Raises:
        GraphError: a kind, a field or a value that isn't as it must be, with its path as ``param``.
    """
    if not isinstance(item, Mapping):
        raise wrong(path, "a node is an object")
    kind = item.get("kind")
    if not isinstance(kind, str) or kind not in NODE_KINDS:
        kinds = ", ".join(NODE_KINDS)
        raise wrong(f"{path}.kind", f"{kind!r} is no kind of node; there are {kinds}")
    node_type = NODE_KINDS[kind]
    fields = {field.name: field for field in dataclasses.fields(node_type)}
    values: dict[str, Any] = {}
    for name, value in item.items():
        if name == "kind":
            continue
        if name not in fields:
            raise wrong(
                f"{path}.{name}",
                f"a {node_type.kind} node has no field {name!r}{near(name, fields)}",
            )
        values[name] = _READERS[name](value, f"{path}.{name}")
    for name, field in fields.items():
        needed = field.default is dataclasses.MISSING
        if needed and field.default_factory is dataclasses.MISSING and name not in values:
            raise wrong(f"{path}.{name}", f"a {node_type.kind} node needs {name!r}")
    return node_type(**values)


def wrong(path: str, reason: str) -> GraphError:
    """The error for what stands at ``path``."""
    return GraphError(f"{path}: {reason}" if path else reason, param=path or None)


def near(name: str, known: Mapping[str, Any]) -> str:
    """A hint at the name that may have been meant."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise wrong(path, f"expected a text, found {_shown(value)}")
    return value


def _identifier(value: Any, path: str) -> str:
    if not _text(value, path):
        raise wrong(path, "an id is not empty")
    return str(value)


def _truth(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise wrong(path, f"expected true or false, found {_shown(value)}")
    return value


def _count(value: Any, path: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise wrong(path, f"expected a whole number from 0, found {_shown(value)}")
    return value


def _list(value: Any, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise wrong(path, f"expected a list, found {_shown(value)}")
    return value


def _texts(value: Any, path: str) -> tuple[str, ...]:
    return tuple(_text(item, f"{path}[{i}]") for i, item in enumerate(_list(value, path)))


def _optional(read: Reader) -> Reader:
    return lambda value, path: None if value is None else read(value, path)


def _one_of(*words: str) -> Reader:
    def read(value: Any, path: str) -> Any:
        if value not in words:
            raise wrong(path, f"{_shown(value)} is none of {', '.join(words)}")
        return value

    return read


def _template(value: Any, path: str) -> Template:
    return tuple(_part(item, f"{path}[{i}]") for i, item in enumerate(_list(value, path)))


def _part(value: Any, path: str) -> str | Ref:
    if isinstance(value, str):
        return value
    if (
        not isinstance(value, Mapping)
        or "node_id" not in value
        or value.keys() - {"node_id", "spec"}
    ):
        raise wrong(path, "a part is a text, or an object with a node_id and perhaps a spec")
    return Ref(_text(value["node_id"], f"{path}.node_id"), _text(value.get("spec", ""), path))


def _choices(value: Any, path: str) -> tuple[Template, ...]:
    choices = tuple(_template(item, f"{path}[{i}]") for i, item in enumerate(_list(value, path)))
    if not choices or not all(choices):
        raise wrong(path, "a select has at least one choice, and none is empty")
    return choices


def _params(value: Any, path: str) -> SamplingParams:
    if not isinstance(value, Mapping):
        raise wrong(path, f"expected an object, found {_shown(value)}")
    values = dict(value)
    try:
        if isinstance(bias := values.get("logit_bias"), Mapping):
            values["logit_bias"] = {int(token_id): item for token_id, item in bias.items()}
        return SamplingParams.from_mapping(values)
    except ValueError:
        raise wrong(f"{path}.logit_bias", "the keys are token ids") from None
    except RametError as error:
        raise wrong(f"{path}.{error.param}" if error.param else path, error.message) from None


def _constraint(value: Any, path: str) -> Constraint:
    try:
        return constraint_from_json(value)
    except ConstraintError as error:
        raise wrong(field_path(path, error.path), error.reason) from None


def _arguments(value: Any, path: str) -> Any:
    if not isinstance(value, Mapping):
        raise wrong(path, f"expected an object, found {_shown(value)}")
    return _data(value, path)


def _data(value: Any, path: str) -> Any:
    """Arguments of a tool, in which references stand for values: see ``graph_json``."""
    if isinstance(value, Mapping):
        if "$ref" in value:
            return Ref(_text(value["$ref"], path), _text(value.get("spec", ""), path))
        if isinstance(parts := value.get("$text"), list):
            return TextWithRefs(tuple(_data(part, path) for part in parts))
        if isinstance(pairs := value.get("$map"), list):
            if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
                raise wrong(path, "a $map is a list of pairs")
            return {_text(key, path): _data(item, path) for key, item in pairs}
        return {key: _data(item, f"{path}.{key}") for key, item in value.items()}
    if isinstance(value, list):
        return [_data(item, f"{path}[{i}]") for i, item in enumerate(value)]
    return value


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


_READERS: dict[str, Reader] = {
    "id": _identifier,
    "parent": _optional(_text),
    "role": _optional(_one_of(*get_args(Role))),
    "turn": _count,
    "parts": _template,
    "name": _text,
    "params": _params,
    "constraint": _optional(_constraint),
    "complete": _optional(_truth),
    "returns": _text,
    "choices": _choices,
    "method": _one_of(*get_args(SelectMethod)),
    "tool": _text,
    "arguments": _arguments,
    "num_branches": _count,
    "of": _one_of(*get_args(JoinKind)),
    "inputs": _texts,
}
"""How a field is read; fields of one name mean the same in every kind of node."""

"""A graph from JSON data (see ``to_json.py``), each field checked, each fault named by its path."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    TypeAdapter,
    create_model,
)

from ramet.grammars.constraints.json_reader import JsonFault, fault_at, read_json, shown
from ramet.grammars.constraints.serialize import constraint_from_json
from ramet.grammars.constraints.values import Constraint
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
from ramet.lang.graph.references import Ref
from ramet.runtime.api.agent_turn import AgentTurn
from ramet.runtime.api.errors import RametError
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.paths import field_path

NODE_KINDS: dict[str, type[Node]] = {
    node_type.kind: node_type for node_type in (Text, Gen, Select, ToolCall, Fork, Join)
}


def read_graph(data: Any, graph: NodeGraph, *, max_nodes: int = MAX_NODES) -> None:
    """Reads a graph into an empty one, and checks it.

    Raises:
        GraphError: data of another shape, a cycle, a dangling edge, a duplicate name, more than
            ``max_nodes`` nodes; its ``param`` is the path of what is wrong.
    """
    items = data.get("nodes") if isinstance(data, Mapping) else None
    if isinstance(items, list) and len(items) > max_nodes:
        reason = f"{len(items)} nodes are more than the limit of {max_nodes}"
        raise GraphError(f"nodes: {reason}", param="nodes")
    try:
        read = read_json(_GRAPHS, data, _field_names)
    except JsonFault as fault:
        path = _param(fault.path)
        raise GraphError(f"{path}: {fault.reason}" if path else fault.reason, param=path) from None
    graph.name = read.name
    try:
        graph.load([_node(item) for item in read.nodes])
        check_graph(graph)
    except GraphError as error:
        if error.node_id:
            ids = [item.id for item in read.nodes]
            error.param = f"nodes[{len(ids) - 1 - ids[::-1].index(error.node_id)}]"
        raise
    graph.open_ends = [OpenEnd(**end.model_dump()) for end in read.open_ends]


def _node(item: Any) -> Node:
    given = {name: getattr(item, name) for name in item.model_fields_set - {"kind"}}
    return NODE_KINDS[item.kind](**given)


def _param(path: tuple[str | int, ...]) -> str | None:
    steps = (str(step).replace("~", "~0").replace("/", "~1") for step in path)
    return field_path("", "".join(f"/{step}" for step in steps)) or None


def _field_names(data: Mapping[str, Any]) -> Collection[str]:
    if "kind" not in data:
        return _Graph.model_fields
    node_type = NODE_KINDS.get(data["kind"])
    return [field.name for field in dataclasses.fields(node_type)] if node_type else ()


# Fields. Those of one name mean the same in every kind of node.


def _part(value: Any) -> str | Ref:
    if isinstance(value, str):
        return value
    if not isinstance(value, Mapping) or {"node_id"} != value.keys() - {"spec"}:
        raise fault_at("a part is a text, or an object with a node_id and perhaps a spec")
    return _ref(value["node_id"], value.get("spec", ""))


def _ref(node_id: Any, spec: Any) -> Ref:
    for name, value in (("node_id", node_id), ("spec", spec)):
        if not isinstance(value, str):
            raise fault_at(f"the {name} of a reference is a text, not {shown(value)}")
    return Ref(node_id, spec)


def _params(value: Any) -> SamplingParams:
    if not isinstance(value, Mapping):
        raise fault_at(f"expected an object, found {shown(value)}")
    values = dict(value)
    try:
        if isinstance(bias := values.get("logit_bias"), Mapping):
            values["logit_bias"] = {int(token_id): item for token_id, item in bias.items()}
        return SamplingParams.from_mapping(values)
    except ValueError:
        raise fault_at("the keys are token ids", "logit_bias") from None
    except RametError as error:
        raise fault_at(error.message, *([error.param] if error.param else [])) from None


def _constraint(value: Any) -> Constraint:
    try:
        return constraint_from_json(value)
    except ConstraintError as error:
        steps = [s.replace("~1", "/").replace("~0", "~") for s in error.path.split("/")[1:]]
        raise fault_at(error.reason, *steps) from None


def _data(value: Any) -> Any:
    """Arguments of a tool, in which references stand for values: see ``to_json.py``."""
    if isinstance(value, Mapping):
        if "$ref" in value:
            return _ref(value["$ref"], value.get("spec", ""))
        if isinstance(parts := value.get("$text"), list):
            return TextWithRefs(tuple(_data(part) for part in parts))
        if isinstance(pairs := value.get("$map"), list):
            if not all(
                isinstance(p, list) and len(p) == 2 and isinstance(p[0], str) for p in pairs
            ):
                raise fault_at("a $map is a list of pairs")
            return {_key(key): _data(item) for key, item in pairs}
        return {key: _data(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_data(item) for item in value]
    return value


def _key(value: Any) -> str:
    if not isinstance(value, str):
        raise fault_at(f"a key of a $map is a text, not {shown(value)}")
    return value


_STRICT = ConfigDict(strict=True, extra="forbid")


class _Function(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")

    name: str


class _AgentTurn(BaseModel):
    model_config = _STRICT

    functions: Annotated[list[_Function], Field(min_length=1)]
    max_calls: Annotated[int, Field(ge=0)]
    must_call: bool = False
    answer: Annotated[Constraint, PlainValidator(_constraint)] | None = None


def _as_agent_turn(turn: _AgentTurn) -> AgentTurn:
    return AgentTurn(
        functions=tuple(function.model_dump() for function in turn.functions),
        max_calls=turn.max_calls,
        must_call=turn.must_call,
        answer=turn.answer,
    )


_Count = Annotated[int, Field(ge=0)]
_Template = Annotated[list[Annotated[str | Ref, PlainValidator(_part)]], AfterValidator(tuple)]
_Choice = Annotated[_Template, Field(min_length=1)]

_FIELDS: dict[str, Any] = {
    "id": Annotated[str, Field(min_length=1)],
    "parent": str | None,
    "role": Role | None,
    "turn": _Count,
    "parts": _Template,
    "name": str,
    "params": Annotated[SamplingParams, PlainValidator(_params)],
    "constraint": Annotated[Constraint, PlainValidator(_constraint)] | None,
    "complete": bool | None,
    "landing": Annotated[float, Field(ge=0, lt=1)] | None,
    "returns": str,
    "agent_turn": Annotated[_AgentTurn, AfterValidator(_as_agent_turn)] | None,
    "choices": Annotated[list[_Choice], Field(min_length=1), AfterValidator(tuple)],
    "method": SelectMethod,
    "tool": str,
    "arguments": Annotated[dict[str, Any], AfterValidator(_data)],
    "num_branches": _Count,
    "of": JoinKind,
    "inputs": Annotated[list[str], AfterValidator(tuple)],
}


def _model_of(node_type: type[Node]) -> type[BaseModel]:
    fields: dict[str, Any] = {"kind": Literal[node_type.kind]}
    for field in dataclasses.fields(node_type):
        has_default = (field.default, field.default_factory) != (dataclasses.MISSING,) * 2
        is_required = not has_default or field.name == "choices"
        fields[field.name] = (_FIELDS[field.name], ... if is_required else None)
    return create_model(node_type.__name__, __config__=_STRICT, **fields)


_NODES: Any = reduce(or_, map(_model_of, NODE_KINDS.values()))


class _OpenEnd(BaseModel):
    model_config = _STRICT

    branch: str
    node_id: str
    where: str


class _Graph(BaseModel):
    model_config = _STRICT

    name: str = "program"
    nodes: list[Annotated[_NODES, Field(discriminator="kind")]]
    open_ends: list[_OpenEnd] = []


_GRAPHS = TypeAdapter(_Graph)

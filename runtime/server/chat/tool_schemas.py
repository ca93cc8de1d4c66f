"""The argument schemas of a call's tools, and their paths in the body."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ramet.grammars.constraints.closed_schema import closed_schema
from ramet.runtime.api.errors import InvalidConstraintError
from ramet.runtime.api.paths import field_path

Schemas = Mapping[str, Mapping[str, Any]]
"""Argument schemas by tool name."""


@dataclass(frozen=True, slots=True)
class ToolSchema:
    """The schema of a tool's arguments, and the field of the body that holds it."""

    schema: Mapping[str, Any]
    field: str


def tool_schemas(tools: Sequence[Mapping[str, Any]], field: str) -> dict[str, ToolSchema]:
    """Returns each tool's argument schema by name; names must be unique.

    Args:
        tools: in OpenAI's shape.
        field: where a tool's schema stands in the body, with ``{}`` for the tool's index.
    """
    schemas: dict[str, ToolSchema] = {}
    for index, tool in enumerate(tools):
        function = tool["function"]
        if function["name"] in schemas:
            raise InvalidConstraintError(
                f"two tools have the name {function['name']!r}", param=f"tools[{index}]"
            )
        place = field.format(index)
        schema = arguments_schema(function.get("parameters"), place)
        schemas[function["name"]] = ToolSchema(schema, place)
    return schemas


def arguments_schema(parameters: Mapping[str, Any] | None, field: str = "") -> dict[str, Any]:
    """Returns a tool's parameters as an object schema; without any, of the empty object.

    Objects whose schema lists properties and says nothing of others are written without others:
    functions seldom take arguments that they don't name, and the arguments stay valid.
    """
    if parameters is None:
        return {"type": "object", "additionalProperties": False}
    kind = parameters.get("type", "object")
    if kind != "object":
        raise InvalidConstraintError(
            f"a tool's parameters must be an object, not {json.dumps(kind)}",
            param=field_path(field, "/type"),
        )
    closed: dict[str, Any] = closed_schema({**parameters, "type": "object"})
    return closed

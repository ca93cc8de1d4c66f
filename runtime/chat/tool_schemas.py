"""The argument schemas of a call's tools, and their paths in the body."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ramet.grammars.constraints.closed_schema import closed_schema
from ramet.runtime.api.errors import InvalidConstraintError
from ramet.runtime.api.paths import field_path
from ramet.runtime.chat.offered_tools import OfferedTool, TextGrammar

Schemas = Mapping[str, Mapping[str, Any]]
"""Argument schemas by tool name."""


@dataclass(frozen=True, slots=True)
class ToolSchema:
    """The schema of a tool's arguments, and the field of the body that holds it.

    ``text_grammar`` is what the text of a custom tool is held to.
    """

    schema: Mapping[str, Any]
    field: str
    text_grammar: TextGrammar | None = None


def tool_schemas(tools: Sequence[OfferedTool]) -> dict[str, ToolSchema]:
    """Returns each tool's argument schema by the name that the model writes; names are unique."""
    schemas: dict[str, ToolSchema] = {}
    for tool in tools:
        name = tool.model_name
        if name in schemas:
            place = tool.field.partition(".")[0]
            raise InvalidConstraintError(f"two tools have the name {name!r}", param=place)
        schema = arguments_schema(tool.definition["function"].get("parameters"), tool.field)
        schemas[name] = ToolSchema(schema, tool.field, tool.text_grammar)
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

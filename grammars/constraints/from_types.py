"""JSON Schemas of Python types, through pydantic."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError

from ramet.grammars.errors import ConstraintError


def json_schema_of(kind: Any) -> dict[str, Any]:
    """The JSON Schema of what a type accepts.

    Args:
        kind: a pydantic model, dataclass, TypedDict, Enum, Literal, union, ``Annotated`` type with
            bounds, or any other type that pydantic knows.

    Raises:
        ConstraintError: the type has no JSON Schema.
    """
    try:
        return TypeAdapter(kind).json_schema(by_alias=True, mode="validation")
    except (PydanticInvalidForJsonSchema, PydanticSchemaGenerationError) as error:
        reason = str(error).splitlines()[0]
        raise ConstraintError("", "type", f"{kind!r} has no JSON Schema: {reason}") from None

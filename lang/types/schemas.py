"""JSON schemas of Python types, as a model should be held to them."""

from __future__ import annotations

from typing import Any

from pydantic import PydanticUserError, TypeAdapter
from pydantic_core import SchemaError

from ramet.lang.base.errors import OutputTypeError

_LISTS_OF_SCHEMAS = ("anyOf", "oneOf", "prefixItems")
_MAPS_OF_SCHEMAS = ("properties", "$defs", "patternProperties")
_SCHEMAS = ("items", "additionalProperties")


def adapter_of(annotation: Any, label: str) -> tuple[TypeAdapter[Any], dict[str, Any]]:
    """What reads a type's values from JSON, and the type's closed schema.

    Raises:
        OutputTypeError: pydantic knows no JSON form of the type.
    """
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(annotation)
        return adapter, closed(adapter.json_schema())
    except (PydanticUserError, SchemaError, TypeError, ValueError) as error:
        raise OutputTypeError(f"{label} has no JSON form: {error}") from error


def closed(schema: Any) -> Any:
    """The schema with objects closed: where a type says nothing of further properties, there are
    none. Pydantic would ignore them, and a model would go on inventing them."""
    if not isinstance(schema, dict):
        return schema
    result = dict(schema)
    for key in _LISTS_OF_SCHEMAS:
        if isinstance(schema.get(key), list):
            result[key] = [closed(item) for item in schema[key]]
    for key in _MAPS_OF_SCHEMAS:
        if isinstance(schema.get(key), dict):
            result[key] = {name: closed(item) for name, item in schema[key].items()}
    for key in _SCHEMAS:
        if key in schema:
            result[key] = closed(schema[key])
    if "properties" in schema and "allOf" not in schema:
        result.setdefault("additionalProperties", False)
    return result

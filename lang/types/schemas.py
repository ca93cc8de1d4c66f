"""JSON Schemas of Python types, closed for generation."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from pydantic import BaseModel, PydanticUserError, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import SchemaError
from pydantic_core.core_schema import DecimalSchema, TaggedUnionSchema

from ramet.grammars.constraints.closed_schema import closed_schema
from ramet.lang.base.errors import OutputTypeError

_MAX_DIGITS = 18
"""Before the point of a Decimal that sets no bounds."""


def adapter_of(annotation: Any, label: str) -> tuple[TypeAdapter[Any], dict[str, Any]]:
    """A type's JSON reader, and its closed schema.

    Raises:
        OutputTypeError: pydantic has no JSON form of the type.
    """
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(annotation)
        return adapter, closed_schema(adapter.json_schema(schema_generator=_WrittenSchema))
    except (PydanticUserError, SchemaError, TypeError, ValueError) as error:
        raise OutputTypeError(f"{label} has no JSON form: {error}") from error


def describe_type(annotation: Any) -> str:
    """The JSON schema that a type's values are held to, as text for a prompt.

    Raises:
        OutputTypeError: pydantic has no JSON form of the type.
    """
    _, schema = adapter_of(annotation, repr(annotation))
    return json.dumps(schema, ensure_ascii=False, separators=(",", ":"))


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """A model's closed schema."""
    schema: dict[str, Any] = closed_schema(model.model_json_schema(schema_generator=_WrittenSchema))
    return schema


class _WrittenSchema(GenerateJsonSchema):
    """Schemas that allow no text which pydantic then refuses."""

    def decimal_schema(self, schema: DecimalSchema) -> JsonSchemaValue:
        """A number of at most 18 digits before the point; pydantic's own allows any string.

        Of ``max_digits`` without ``decimal_places`` half may follow the point.
        """
        bounds = {
            keyword: Decimal(str(schema.get(name)))
            for name, keyword in self.ValidationsMapping.numeric.items()
            if schema.get(name) is not None
        }
        digits, places = schema.get("max_digits"), schema.get("decimal_places")
        if places is None and digits is not None:
            places = digits // 2
        if places is not None:
            bounds.setdefault("multipleOf", Decimal(1).scaleb(-places))
        limit = Decimal(1).scaleb(_MAX_DIGITS if digits is None else digits - (places or 0))
        if not bounds.get("maximum", limit) < limit:
            bounds["exclusiveMaximum"] = min(limit, bounds.get("exclusiveMaximum", limit))
        if not bounds.get("minimum", -limit) > -limit:
            bounds["exclusiveMinimum"] = max(-limit, bounds.get("exclusiveMinimum", -limit))
        return {"type": "number", **{keyword: _plain(bound) for keyword, bound in bounds.items()}}

    def tagged_union_schema(self, schema: TaggedUnionSchema) -> JsonSchemaValue:
        """Requires the property that distinguishes the branches, as pydantic does."""
        written = super().tagged_union_schema(schema)
        name = written.get("discriminator", {}).get("propertyName")
        for branch in written.get("oneOf", ()):
            found: Any = branch
            if "$ref" in branch:
                found = self.get_schema_from_definitions(branch["$ref"])
            required = found.get("required", [])
            if name in found.get("properties", {}) and name not in required:
                found["required"] = [*required, name]
        return written


def _plain(number: Decimal) -> int | float:
    return int(number) if number == number.to_integral_value() else float(number)

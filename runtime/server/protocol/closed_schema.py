"""Closes object schemas that list their properties and say nothing of others.

A model that may add properties of its own goes on adding them, and few clients mean that they
should be. Closing must never forbid all values nor allow one that the schema forbids, so a document
is closed only where each object is described in one place: one that combines schemas (``allOf``,
``oneOf``, ``not``, ``if``, ``contains`` and the like, or keywords beside a ``$ref``) stays as it
is. ``additionalProperties: true`` keeps a single object open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_COMBINING = frozenset(
    {
        *("allOf", "oneOf", "not", "if", "then", "else", "contains", "dependentSchemas"),
        *("dependencies", "$dynamicRef", "$recursiveRef", "$anchor", "$dynamicAnchor"),
        *("patternProperties", "unevaluatedProperties", "unevaluatedItems"),
    }
)
_SAY_OF_OTHERS = frozenset(
    {"additionalProperties", "dependentRequired", "enum", "const", "minProperties"}
)
_ASIDE = frozenset(
    {
        *("title", "description", "default", "examples", "deprecated", "$comment"),
        *("$schema", "$id", "$defs", "definitions", "readOnly", "writeOnly", "discriminator"),
    }
)
"""Keywords that say nothing of a value."""

_DATA = frozenset({"enum", "const", "default", "examples"})
"""Keywords whose values are data, not schemas."""

_INNER = frozenset({"properties", "required", "items", "prefixItems", "additionalProperties"})
_MAPS = ("properties", "$defs", "definitions")
_LISTS = ("anyOf", "prefixItems")
_SCHEMAS = ("items", "additionalProperties")


def closed_schema(schema: Any) -> Any:
    """Closes plain object schemas, recursively; the schema itself where it combines schemas."""
    if any(_combines(part) for part in _parts(schema)):
        return schema
    return _closed(schema)


def _parts(schema: Any) -> Iterator[Mapping[str, Any]]:
    """All subschemas, the schema itself first."""
    if isinstance(schema, list):
        for item in schema:
            yield from _parts(item)
    if isinstance(schema, Mapping):
        yield schema
        for key, value in schema.items():
            if key in _MAPS and isinstance(value, Mapping):
                for item in value.values():
                    yield from _parts(item)
            elif key not in _DATA:
                yield from _parts(value)


def _combines(schema: Mapping[str, Any]) -> bool:
    """Whether several subschemas have a say in one value."""
    says = schema.keys() - _ASIDE
    if says & _COMBINING:
        return True
    if "$ref" in says:
        return len(says) > 1
    if "anyOf" in says or {"enum", "const"} & says:
        return bool(_INNER & says)
    return False


def _closed(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    closed = dict(schema)
    for key in _MAPS:
        if isinstance(closed.get(key), Mapping):
            closed[key] = {name: _closed(value) for name, value in closed[key].items()}
    for key in _LISTS:
        if isinstance(closed.get(key), list):
            closed[key] = [_closed(value) for value in closed[key]]
    for key in _SCHEMAS:
        if key in closed:
            closed[key] = _closed(closed[key])
    properties = closed.get("properties")
    if isinstance(properties, Mapping) and properties and not _SAY_OF_OTHERS & closed.keys():
        required = closed.get("required", [])
        if isinstance(required, list) and not set(map(str, required)) - properties.keys():
            closed["additionalProperties"] = False
    return closed

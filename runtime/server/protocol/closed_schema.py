"""Closes object schemas that list their properties and say nothing of others.

A model that may add properties of its own goes on adding them, and few clients mean that they
should be. What is written stays valid: a closed schema allows a subset. ``additionalProperties:
true`` keeps an object open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_SAY_OF_OTHERS = frozenset(
    {
        *("additionalProperties", "unevaluatedProperties", "patternProperties"),
        *("$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if", "dependentSchemas"),
        *("dependentRequired", "dependencies", "enum", "const", "minProperties"),
    }
)
_COMBINING = ("allOf", "not", "if", "then", "else", "dependentSchemas", "dependencies")
_ANNOTATIONS = frozenset(
    {"$ref", "title", "description", "default", "examples", "deprecated", "$comment"}
)
_MAPS = ("properties", "$defs", "definitions")


def closed_schema(schema: Any) -> Any:
    """Closes plain object schemas, recursively: properties, items, alternatives and definitions.

    Schemas that others are combined with (in ``allOf``, or beside a ``$ref``) stay as they are:
    each says a part of what one object has.
    """
    return _closed(schema, frozenset(_combined_refs(schema, combined=False)))


def _closed(schema: Any, kept: frozenset[str], pointer: str = "#") -> Any:
    if not isinstance(schema, Mapping) or pointer in kept:
        return schema
    closed = dict(schema)
    for key in _MAPS:
        if isinstance(closed.get(key), Mapping):
            closed[key] = {
                name: _closed(value, kept, f"{pointer}/{key}/{name}")
                for name, value in closed[key].items()
            }
    if "items" in closed:
        closed["items"] = _closed(closed["items"], kept, f"{pointer}/items")
    if len(_properties_of(closed)) and not _SAY_OF_OTHERS & closed.keys():
        required = closed.get("required", ())
        if isinstance(required, list) and set(required) - closed["properties"].keys():
            return closed  # What is required and not listed must have a place.
        closed["additionalProperties"] = False
    return closed


def _properties_of(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = schema.get("properties")
    return properties if isinstance(properties, Mapping) else {}


def _combined_refs(schema: Any, *, combined: bool) -> Iterator[str]:
    """The pointers that ``$ref`` names where another schema has a say in the same value."""
    if isinstance(schema, list):
        for item in schema:
            yield from _combined_refs(item, combined=combined)
    if not isinstance(schema, Mapping):
        return
    target = schema.get("$ref")
    if isinstance(target, str) and (combined or schema.keys() - _ANNOTATIONS):
        yield target
    for key, value in schema.items():
        if key in _MAPS and isinstance(value, Mapping):
            for item in value.values():
                yield from _combined_refs(item, combined=False)
        else:
            yield from _combined_refs(value, combined=combined or key in _COMBINING)

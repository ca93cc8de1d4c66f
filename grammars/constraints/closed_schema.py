"""Closes object schemas that list properties without mentioning additional ones.

A model that may add properties keeps adding them, and few clients intend that. Closing must never
forbid all values nor allow one that the schema forbids, so a document
is closed only where each object is described in one place: one that combines schemas (``allOf``,
``oneOf``, ``not``, ``if``, ``contains`` and the like, or keywords next to a ``$ref``) stays as it
is. A ``oneOf`` whose ``discriminator`` names a property that is another constant in each branch
combines nothing: a value can be of one branch alone. ``additionalProperties: true`` keeps a single
object open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_COMBINING = frozenset(
    {
        *("allOf", "not", "if", "then", "else", "contains", "dependentSchemas"),
        *("dependencies", "$dynamicRef", "$recursiveRef", "$anchor", "$dynamicAnchor"),
        *("unevaluatedProperties", "unevaluatedItems"),
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
_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_LISTS = ("anyOf", "oneOf", "prefixItems")
_SCHEMAS = ("items", "additionalProperties")


def closed_schema(schema: Any) -> Any:
    """Closes plain object schemas, recursively; the schema itself where it combines schemas."""
    if any(_combines(part, schema) for part in _parts(schema)):
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


def _combines(schema: Mapping[str, Any], root: Any) -> bool:
    """Whether several subschemas apply to one value."""
    says = schema.keys() - _ASIDE
    if says & _COMBINING:
        return True
    if "patternProperties" in says:
        patterns = schema["patternProperties"]
        return "properties" in says or not isinstance(patterns, Mapping) or len(patterns) > 1
    if "$ref" in says:
        return len(says) > 1
    if "oneOf" in says:
        return bool(_INNER & says) or "anyOf" in says or not _is_discriminated(schema, root)
    if "anyOf" in says or {"enum", "const"} & says:
        return bool(_INNER & says)
    return False


def _is_discriminated(schema: Mapping[str, Any], root: Any) -> bool:
    """Whether one property, required in each branch of a ``oneOf``, distinguishes the branches."""
    discriminator = schema.get("discriminator")
    name = discriminator.get("propertyName") if isinstance(discriminator, Mapping) else None
    constants: list[str] = []
    for branch in schema["oneOf"] if isinstance(schema["oneOf"], list) else ():
        found = _resolved(branch, root)
        tag = found.get("properties", {}).get(name) if isinstance(found, Mapping) else None
        if not isinstance(tag, Mapping) or name not in found.get("required", ()):
            return False
        values = tag.get("enum", [tag.get("const")])
        if not all(isinstance(value, str) for value in values):
            return False
        constants += values
    return bool(constants) and len(set(constants)) == len(constants)


def _resolved(schema: Any, root: Any) -> Any:
    """A schema, or what its ``$ref`` to one of the document's definitions names."""
    ref = schema.get("$ref") if isinstance(schema, Mapping) else None
    if not isinstance(ref, str):
        return schema
    anchor, _, name = ref.rpartition("/")
    definitions = root.get(anchor.removeprefix("#/"))
    return definitions.get(name) if isinstance(definitions, Mapping) else None


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

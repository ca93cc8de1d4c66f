"""JSON Type Definition (RFC 8927): a schema is one of eight forms, by its keywords."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ramet.grammars.errors import ConstraintError
from ramet.grammars.json_schema.schema.keywords import ASSERTION, SUBSCHEMA, SUBSCHEMA_MAP

from .dialect import Dialect

_INTEGERS = {
    f"{sign}int{bits}": (0, 2**bits - 1) if sign else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    for sign in ("", "u")
    for bits in (8, 16, 32)
}
_TYPES: dict[str, dict[str, Any]] = {
    "boolean": {"type": "boolean"},
    "string": {"type": "string"},
    "timestamp": {"type": "string", "format": "date-time"},
    "float32": {"type": "number"},
    "float64": {"type": "number"},
    **{
        name: {"type": "integer", "minimum": low, "maximum": high}
        for name, (low, high) in _INTEGERS.items()
    },
}
_PROPERTIES = frozenset({"properties", "optionalProperties", "additionalProperties"})
_SHARED = frozenset({"nullable", "metadata", "definitions", "$schema"})
_FORMS: tuple[tuple[str, frozenset[str]], ...] = (
    ("ref", frozenset({"ref"})),
    ("type", frozenset({"type"})),
    ("enum", frozenset({"enum"})),
    ("elements", frozenset({"elements"})),
    ("values", frozenset({"values"})),
    ("discriminator", frozenset({"discriminator", "mapping"})),
    ("properties", _PROPERTIES),
    ("optionalProperties", _PROPERTIES),
)
_OWN_KEYWORDS = frozenset({"ref", "elements", "values", "optionalProperties", "mapping"})
_OWN_TYPES = _TYPES.keys() - {"boolean", "string"}


def _rewrite(schema: dict[str, Any], path: str) -> dict[str, Any]:
    keyword = _form_of(schema, path)
    found: dict[str, Any] = getattr(_Forms, keyword or "empty")(schema, path)
    if schema.get("nullable", False) is True:
        return {"anyOf": [_bare(schema), {"enum": [None]}]} if keyword else {}
    return found


def _bare(schema: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in schema.items() if k not in _SHARED}


def _form_of(schema: dict[str, Any], path: str) -> str | None:
    keywords = schema.keys() - _SHARED
    for keyword, allowed in _FORMS:
        if keyword in keywords:
            for other in sorted(keywords - allowed):
                raise ConstraintError(
                    f"{path}/{other}", other, f"in JSON Type Definition it can't be with {keyword}"
                )
            return keyword
    for other in sorted(keywords):
        raise ConstraintError(f"{path}/{other}", other, "is not a keyword of JSON Type Definition")
    return None


class _Forms:
    """By form, the same in JSON Schema's keywords."""

    @staticmethod
    def empty(_schema: dict[str, Any], _path: str) -> dict[str, Any]:
        return {}

    @staticmethod
    def ref(schema: dict[str, Any], path: str) -> dict[str, Any]:
        name = schema["ref"]
        if not isinstance(name, str):
            raise ConstraintError(f"{path}/ref", "ref", "ref must be a string")
        step = name.replace("~", "~0").replace("/", "~1").replace("%", "%25")
        return {"$ref": f"#/definitions/{step}"}

    @staticmethod
    def type(schema: dict[str, Any], path: str) -> dict[str, Any]:
        found = _TYPES.get(schema["type"]) if isinstance(schema["type"], str) else None
        if found is None:
            raise ConstraintError(
                f"{path}/type", "type", f"{schema['type']!r} is not a type of JSON Type Definition"
            )
        return found

    @staticmethod
    def enum(schema: dict[str, Any], path: str) -> dict[str, Any]:
        values = schema["enum"]
        if not isinstance(values, list) or not values:
            raise ConstraintError(f"{path}/enum", "enum", "enum must be an array of strings")
        if values != [None] and not all(isinstance(v, str) for v in values):
            raise ConstraintError(f"{path}/enum", "enum", "enum must be an array of strings")
        return {"enum": values}

    @staticmethod
    def elements(schema: dict[str, Any], _path: str) -> dict[str, Any]:
        return {"type": "array", "items": schema["elements"]}

    @staticmethod
    def values(schema: dict[str, Any], _path: str) -> dict[str, Any]:
        return {"type": "object", "additionalProperties": schema["values"]}

    @staticmethod
    def properties(schema: dict[str, Any], path: str) -> dict[str, Any]:
        needed = schema.get("properties", {})
        others = schema.get("optionalProperties", {})
        for keyword, value in (("properties", needed), ("optionalProperties", others)):
            if not isinstance(value, dict):
                raise ConstraintError(f"{path}/{keyword}", keyword, f"{keyword} must be an object")
        for name in sorted(needed.keys() & others.keys()):
            raise ConstraintError(
                f"{path}/optionalProperties/{name}", "optionalProperties", "it is required, too"
            )
        is_open = schema.get("additionalProperties", False)
        return {
            "type": "object",
            "properties": {**needed, **others},
            "required": list(needed),
            **({} if is_open else {"additionalProperties": False}),
        }

    optionalProperties = properties

    @staticmethod
    def discriminator(schema: dict[str, Any], path: str) -> dict[str, Any]:
        tag, mapping = schema["discriminator"], schema.get("mapping")
        if not isinstance(tag, str) or not isinstance(mapping, dict):
            raise ConstraintError(
                f"{path}/discriminator", "discriminator", "it must be a string, with a mapping"
            )
        options = []
        for value, option in mapping.items():
            where = f"{path}/mapping/{value}"
            if not isinstance(option, dict) or option.get("nullable"):
                raise ConstraintError(where, "mapping", "must be an object that is not nullable")
            if _form_of(option, where) not in ("properties", "optionalProperties"):
                raise ConstraintError(where, "mapping", "must list properties")
            properties = option.get("properties", {})
            if not isinstance(properties, dict) or tag in properties:
                raise ConstraintError(where, "mapping", f"must list properties other than {tag!r}")
            options.append({**option, "properties": {tag: {"enum": [value]}, **properties}})
        return {"anyOf": options}


def is_jtd(schema: Any) -> bool:
    """Whether a schema is well-formed JSON Type Definition, and has what JSON Schema has not."""
    if not isinstance(schema, dict) or "$schema" in schema:
        return False
    parts = list(_parts(schema))
    if not any(_OWN_KEYWORDS & part.keys() or _has_own_type(part) for part in parts):
        return False
    try:
        for part in parts:
            _rewrite(part, "")
    except ConstraintError:
        return False
    return True


def _has_own_type(schema: dict[str, Any]) -> bool:
    return isinstance(schema.get("type"), str) and schema["type"] in _OWN_TYPES


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    """All schemas in a document."""
    if not isinstance(schema, dict):
        return
    yield schema
    for keyword, role in _ROLES.items():
        inner = schema.get(keyword)
        if role == SUBSCHEMA:
            yield from _parts(inner)
        elif role == SUBSCHEMA_MAP and isinstance(inner, dict):
            for value in inner.values():
                yield from _parts(value)


_ROLES = {
    **dict.fromkeys(("ref", "type", "enum", "discriminator", "nullable"), ASSERTION),
    "additionalProperties": ASSERTION,
    **dict.fromkeys(("elements", "values"), SUBSCHEMA),
    **dict.fromkeys(("properties", "optionalProperties", "mapping", "definitions"), SUBSCHEMA_MAP),
}
JTD = Dialect("jtd", _ROLES, identifiers=(), rewrite=_rewrite, is_closed=True, is_shared=False)

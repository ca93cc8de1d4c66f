"""JSON Schema's keywords: the kind of each one's value, and its check.

A keyword of the wrong kind can't be enforced, so it is refused, not ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ramet.grammars.errors import ConstraintError

ASSERTION, SUBSCHEMA, SUBSCHEMA_LIST, SUBSCHEMA_MAP, REFERENCE, IDENTITY = range(6)
"""What a keyword's value is: plain data; a subschema, a list or an object of them (where one or
the other may stand, its value tells); a reference; or a name of the schema itself."""

ROLES: dict[str, int] = {
    name: role
    for role, names in (
        (
            ASSERTION,
            "type enum const minimum maximum exclusiveMinimum exclusiveMaximum multipleOf"
            " divisibleBy minLength maxLength pattern format minItems maxItems uniqueItems"
            " minContains maxContains required minProperties maxProperties dependentRequired"
            " nullable",
        ),
        (
            SUBSCHEMA,
            "additionalProperties additionalItems propertyNames contains not if then else"
            " unevaluatedItems unevaluatedProperties contentSchema items",
        ),
        (SUBSCHEMA_LIST, "allOf anyOf oneOf prefixItems"),
        (
            SUBSCHEMA_MAP,
            "properties patternProperties $defs definitions dependentSchemas dependencies",
        ),
        (REFERENCE, "$ref $dynamicRef $recursiveRef"),
        (IDENTITY, "$schema $id id $anchor $dynamicAnchor $recursiveAnchor"),
    )
    for name in names.split()
}
"""By keyword; every other one is an annotation."""


def check_keywords(schema: dict[str, Any], path: str) -> None:
    """Refuses a keyword whose value is of the wrong kind and would otherwise be ignored.

    Raises:
        ConstraintError: names the keyword and what its value must be.
    """
    for keyword, value in schema.items():
        known = _KINDS.get(keyword)
        if known is not None and not known[0](value):
            raise ConstraintError(f"{path}/{keyword}", keyword, f"{keyword} must be {known[1]}")


def _is_schema(value: object) -> bool:
    return isinstance(value, dict | bool)


def _is_list(value: object) -> bool:
    return isinstance(value, list)


def _is_name_list(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(v, str) for v in value)


def _is_map(is_value: Callable[[Any], bool]) -> Callable[[Any], bool]:
    def check(value: Any) -> bool:
        return isinstance(value, dict) and all(
            isinstance(k, str) and is_value(v) for k, v in value.items()
        )

    return check


_A_SCHEMA = (_is_schema, "an object or a boolean")
_A_MAP = (_is_map(lambda _: True), "an object")

_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "uniqueItems": (lambda v: isinstance(v, bool), "a boolean"),
    "format": (lambda v: isinstance(v, str), "a string"),
    "items": (lambda v: _is_schema(v) or _is_list(v), "an object, a boolean or an array"),
    "prefixItems": (_is_list, "an array"),
    "additionalItems": _A_SCHEMA,
    "if": _A_SCHEMA,
    "then": _A_SCHEMA,
    "else": _A_SCHEMA,
    "properties": _A_MAP,
    "patternProperties": _A_MAP,
    "dependentRequired": (_is_map(_is_name_list), "an object of arrays of strings"),
    "dependentSchemas": (_is_map(_is_schema), "an object of schemas"),
    "dependencies": (
        _is_map(lambda v: _is_schema(v) or isinstance(v, str) or _is_name_list(v)),
        "an object of schemas and arrays of strings",
    ),
}

"""How a parameter's value is written between tags: as plain text, or as JSON.

The grammar of calls and their parser follow the same rules: a string without further conditions,
and a string of a list, stand as they are; every other value is JSON text. What is no JSON of a
permitted type is read as text, since models also write strings without quotes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

END = "</parameter>"
"""Ends a value."""

ANNOTATIONS = frozenset(
    {
        "$comment", "$id", "$schema", "default", "deprecated", "description", "examples",
        "readOnly", "title", "writeOnly",
    }
)  # fmt: skip
"""Keywords that say nothing of a value's validity."""

_IN_STRING = re.compile(r'\s*(?:[\[{][^"]*)?(?:"(?:[^"\\]|\\.)*"[^"]*)*"(?:[^"\\]|\\.)*', re.DOTALL)
"""The beginning of a JSON value, up to within one of its strings."""

_ALL_TYPES = frozenset({"array", "boolean", "null", "number", "object", "string"})
_MAX_DEPTH = 32


def is_plain_text(schema: Any) -> bool:
    """Whether any text is a valid value, which is then written unquoted."""
    if not isinstance(schema, Mapping) or schema.get("type") != "string":
        return False
    return set(schema) - {"type"} <= ANNOTATIONS


def listed_texts(schema: Any) -> tuple[str, ...]:
    """The only valid values, where they are strings that can stand as they are."""
    if not isinstance(schema, Mapping) or schema.get("type", "string") != "string":
        return ()
    if set(schema) - ANNOTATIONS - {"type"} not in ({"enum"}, {"const"}):
        return ()
    options = schema["enum"] if "enum" in schema else [schema["const"]]
    if not isinstance(options, list) or not all(map(_can_stand, options)):
        return ()
    return tuple(options)


def _can_stand(option: Any) -> bool:
    if not isinstance(option, str) or END in option:
        return False
    return not option.startswith("\n") and not option.endswith("\n")


def read_value(text: str, schema: Any) -> Any:
    """The value that is written as ``text``; ``schema`` is None for an undeclared parameter."""
    if schema is None or is_plain_text(schema) or text in listed_texts(schema):
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if _type_of(value) in _types(schema) else text


def may_continue(text: str, schema: Any) -> bool:
    """Whether ``END`` behind ``text`` is a part of the value: it stands in a string of its JSON.

    Plain text can't have it, and neither can an undeclared parameter.
    """
    if schema is None or is_plain_text(schema) or text.strip("\n") in listed_texts(schema):
        return False
    return _IN_STRING.fullmatch(text) is not None


def _type_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _types(schema: Any, depth: int = 0) -> frozenset[str]:
    """The types that a schema may permit; all of them where that takes more than a look."""
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return _ALL_TYPES
    found = _ALL_TYPES
    kind = schema.get("type")
    if isinstance(kind, str | list):
        names = [kind] if isinstance(kind, str) else kind
        found &= {"number" if name == "integer" else name for name in names}
    if isinstance(schema.get("enum"), list):
        found &= {_type_of(value) for value in schema["enum"]}
    if "const" in schema:
        found &= {_type_of(schema["const"])}
    for word in ("anyOf", "oneOf"):
        if isinstance(schema.get(word), list):
            found &= frozenset().union(*(_types(each, depth + 1) for each in schema[word]))
    if isinstance(schema.get("allOf"), list):
        for each in schema["allOf"]:
            found &= _types(each, depth + 1)
    return found

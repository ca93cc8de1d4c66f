"""How an argument's value is written where each argument is written by itself.

The grammar of calls, their writer and their parser follow the same rules: between tags, a string
without further conditions, and a string of a list, are written unquoted; every other value is JSON
text. What is no JSON of a permitted type is read as text, since models also write strings without
quotes. In a Python call all values are JSON text, or the literals that Python has instead.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from typing import Any

ANNOTATIONS = frozenset(
    {
        "$comment", "$id", "$schema", "default", "deprecated", "description", "examples",
        "readOnly", "title", "writeOnly",
    }
)  # fmt: skip
"""Keywords that say nothing of a value's validity."""

PYTHON_WORDS = {"true": "True", "false": "False", "null": "None"}
"""JSON's words as Python writes them."""

_IN_STRING = re.compile(r'\s*(?:[\[{][^"]*)?(?:"(?:[^"\\]|\\.)*"[^"]*)*"(?:[^"\\]|\\.)*', re.DOTALL)
"""The beginning of a JSON value, up to within one of its strings."""

_ALL_TYPES = frozenset({"array", "boolean", "null", "number", "object", "string"})
_MAX_DEPTH = 32


def write_value(value: Any, schema: Any, end: str | None) -> str:
    """A value as the model writes it before the mark ``end``; None: in a Python call.

    Without a schema a string is written unquoted, as chat templates print it.
    """
    text = json.dumps(value, ensure_ascii=False)
    if end is None:
        return PYTHON_WORDS.get(text, text)
    if not isinstance(value, str) or end in value:
        return text
    is_unquoted = schema is None or is_plain_text(schema) or value in listed_texts(schema, end)
    return value if is_unquoted else text


def is_plain_text(schema: Any) -> bool:
    """Whether any text is a valid value, which is then written unquoted."""
    if not isinstance(schema, Mapping) or schema.get("type") != "string":
        return False
    return set(schema) - {"type"} <= ANNOTATIONS


def listed_texts(schema: Any, end: str) -> tuple[str, ...]:
    """The only valid values, where they are strings that can be written unquoted."""
    if not isinstance(schema, Mapping) or schema.get("type", "string") != "string":
        return ()
    if set(schema) - ANNOTATIONS - {"type"} not in ({"enum"}, {"const"}):
        return ()
    options = schema["enum"] if "enum" in schema else [schema["const"]]
    if not isinstance(options, list) or not all(_can_stand(option, end) for option in options):
        return ()
    return tuple(options)


def _can_stand(option: Any, end: str) -> bool:
    if not isinstance(option, str) or end in option:
        return False
    return not option.startswith("\n") and not option.endswith("\n")


def read_value(text: str, schema: Any, end: str) -> str:
    """The JSON text of a value between tags; ``schema`` is None for an undeclared parameter."""
    quoted = json.dumps(text, ensure_ascii=False)
    if schema is None or is_plain_text(schema) or text in listed_texts(schema, end):
        return quoted
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return quoted
    # JSON stays as it was written: numbers keep their digits.
    return text.strip() if _type_of(value) in _types(schema) else quoted


def read_python_value(text: str) -> str | None:
    """The JSON text of an argument of a Python call; None if it is no literal."""
    try:
        json.loads(text, parse_constant=_refuse)
        return text.strip()
    except (ValueError, RecursionError):
        pass
    try:
        value = _literal(ast.parse(text.strip(), mode="eval").body)
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def _literal(node: ast.expr) -> Any:
    """The value of a literal; JSON's words count as literals."""
    match node:
        case ast.Constant(str() | int() | float() | None as value):
            return value
        case ast.Name(("true" | "false" | "null") as word):
            return json.loads(word)
        case ast.List(elements) | ast.Tuple(elements):
            return [_literal(each) for each in elements]
        case ast.Dict(keys, values):
            pairs = zip(keys, values, strict=True)
            return {_key(key): _literal(value) for key, value in pairs}
        case ast.UnaryOp(ast.USub(), ast.Constant(int() | float() as value)):
            return -value
    raise ValueError("no literal")


def _key(node: ast.expr | None) -> str:
    key = None if node is None else _literal(node)
    if not isinstance(key, str):
        raise ValueError("a key must be a string")
    return key


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


def may_continue(text: str, schema: Any, end: str) -> bool:
    """Whether ``end`` behind ``text`` is a part of the value: it stands in a string of its JSON.

    Plain text can't have it, and neither can an undeclared parameter.
    """
    if schema is None or is_plain_text(schema) or text.strip("\n") in listed_texts(schema, end):
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

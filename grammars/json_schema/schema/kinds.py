"""The JSON types that a node may allow, from its keywords alone."""

from __future__ import annotations

from .atoms import Const
from .documents import Leaf
from .formula import Formula, conjuncts

OF_TYPE = {
    "object": ("object",), "array": ("array",), "string": ("string",), "number": ("number",),
    "integer": ("number",), "null": ("null",), "boolean": ("true", "false"),
}  # fmt: skip
"""By name of a schema's type, the types of values that it has; see ``atoms.TYPES``."""

_ORDER = ("string", "number", "null", "true", "false", "array", "object")


def kinds_of(node: Formula) -> tuple[str, ...]:
    """A superset of the types that a node allows; the easiest first."""
    found: tuple[str, ...] = _ORDER
    for part in conjuncts(node):
        named = _named_kinds(part)
        if named is not None:
            found = tuple([k for k in found if k in named])
    return found


def _named_kinds(part: Formula) -> set[str] | None:
    """The types that a single conjunct names; None if it names none."""
    value = part.parts[0] if part.op == "atom" else None
    if isinstance(value, Const):
        return {value.value[0]}  # type: ignore[index]
    if not isinstance(value, Leaf) or isinstance(value.schema, bool) or "$ref" in value.schema:
        return None
    schema = value.schema
    listed = schema.get("enum", [schema["const"]] if "const" in schema else None)
    names = schema.get("type", ())
    if isinstance(names, str):
        names = (names,)
    if listed and isinstance(listed, list):
        # That they are of the schema's types is for the typed formula to say.
        return {_kind_of(v) for v in listed}
    if not isinstance(names, list | tuple) or not names:
        return None
    if not all(isinstance(n, str) and n in OF_TYPE for n in names):
        return None
    return {kind for name in names for kind in OF_TYPE[name]}


def _kind_of(value: object) -> str:
    if isinstance(value, str):
        return "string"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "object"
    if isinstance(value, list | tuple):
        return "array"
    return "null" if value is None else "number"

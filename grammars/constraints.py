"""The constraint values: what a caller may ask of a text. One discriminated union, ``Constraint``.

They are plain data: they compare, hash (by content), pickle, and travel as JSON by ``kind``.
``compile_constraint`` turns one into a ``Grammar`` for a vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

JsonValue = Any
"""Any value that ``json.loads`` can give; schemas are such values."""

Whitespace = Literal["none", "compact", "pretty"]
"""JSON whitespace: none; at most one space where JSON allows any; newlines and indentation."""


@dataclass(frozen=True, eq=False)
class JsonSchema:
    """Text that is one JSON value valid against ``schema`` (draft 2020-12 or draft-07).

    ``any_order`` lets an object's properties come in any order; otherwise the schema's order is
    kept. ``documents`` maps URIs to schemas that ``$ref`` may name; nothing is ever fetched.
    """

    schema: JsonValue
    whitespace: Whitespace = "compact"
    any_order: bool = True
    documents: dict[str, JsonValue] = field(default_factory=dict)
    kind: Literal["json_schema"] = "json_schema"


@dataclass(frozen=True)
class JsonObject:
    """Text that is any one JSON object."""

    whitespace: Whitespace = "compact"
    kind: Literal["json_object"] = "json_object"


@dataclass(frozen=True)
class Regex:
    """Text that the whole of ``pattern`` matches. ``dialect`` is Python's syntax or ECMA-262's."""

    pattern: str
    dialect: Literal["python", "ecma"] = "python"
    kind: Literal["regex"] = "regex"


@dataclass(frozen=True)
class Ebnf:
    """Text that a context-free grammar derives, in GBNF's or Lark's dialect."""

    grammar: str
    dialect: Literal["auto", "gbnf", "lark"] = "auto"
    start: str | None = None
    kind: Literal["ebnf"] = "ebnf"


@dataclass(frozen=True)
class Choice:
    """Text that is exactly one of ``choices``."""

    choices: tuple[str, ...]
    kind: Literal["choice"] = "choice"


Constraint = JsonSchema | JsonObject | Regex | Ebnf | Choice

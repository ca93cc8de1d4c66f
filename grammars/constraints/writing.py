"""Narrows constraints for generation: a model writes a subset of what a constraint accepts.

Validation (``Grammar.match``) keeps each dialect's meaning. Generated text is narrower where
readers seldom expect more: ``\\d``, ``\\w`` and ``\\s`` of a regex write ASCII, wherever the regex
stands (Python's or ECMA-262's dialect, a Lark grammar, a part of a structural tag). ``(?u)`` opens
them again. Where less of a class means more text (in a negated set or assertion, or as ``\\D``,
``\\W``, ``\\S``, ``\\b``) it keeps its dialect's meaning. Numbers for which a JSON schema sets no
bounds have few digits, lest a model write one until its tokens are used up; bounds in the schema
open them.
"""

from __future__ import annotations

import dataclasses
import operator
from dataclasses import fields
from typing import Any, TypeVar

from .closed_schema import closed_schema
from .values import (
    AnyOf,
    Ebnf,
    JsonObject,
    JsonSchema,
    JsonString,
    JsonValue,
    Regex,
    Repeated,
    Series,
    StructuralTag,
    Tag,
    TriggeredTags,
)

T = TypeVar("T")

_NESTING = (AnyOf, JsonString, Repeated, Series, StructuralTag, Tag, TriggeredTags)


def for_writing(constraint: T) -> T:
    """A constraint, or a part, narrowed for generation; the same object if nothing changes."""
    if isinstance(constraint, Regex | Ebnf):
        return dataclasses.replace(constraint, classes="ascii")
    if isinstance(constraint, JsonSchema | JsonObject) and constraint.digits == "any":
        return dataclasses.replace(constraint, digits="bounded")
    if isinstance(constraint, _NESTING):
        parts = {field.name: getattr(constraint, field.name) for field in fields(constraint)}
        narrowed = {name: _narrowed(part) for name, part in parts.items()}
        if any(narrowed[name] is not parts[name] for name in parts):
            return dataclasses.replace(constraint, **narrowed)
    return constraint


def answer_schema(schema: JsonValue) -> JsonSchema:
    """The constraint of a schema for a model's whole answer.

    Keys are in the schema's order and without white space, so that the grammar forces them
    (jump-forward) and they cost no steps. Objects that list properties have no others; numbers have
    bounds on their digits.
    """
    return JsonSchema(
        closed_schema(schema),
        whitespace="none",
        any_order=False,
        integers="plain",
        digits="bounded",
    )


def _narrowed(value: Any) -> Any:
    """A field of a part: a part, several of them, or something else."""
    if not isinstance(value, tuple):
        return for_writing(value)
    items = tuple(map(for_writing, value))
    return value if all(map(operator.is_, items, value)) else items

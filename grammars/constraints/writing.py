"""What a model is held to while it writes: a subset of what a constraint accepts.

Validation (``Grammar.match``) keeps each dialect's meaning. Text that is written is narrower where
readers seldom expect more: ``\\d``, ``\\w`` and ``\\s`` of a Python regular expression write ASCII.
A leading ``(?u)`` opens them again. A pattern in which a class stands where less of it means more
text (in a negated set or assertion, or as ``\\D``, ``\\W``, ``\\S``, ``\\b``) is left as it is.
"""

from __future__ import annotations

import dataclasses
import operator
import re
from dataclasses import fields
from typing import Any, TypeVar

from .values import (
    AnyOf,
    Regex,
    Repeated,
    Series,
    StructuralTag,
    Tag,
    TriggeredTags,
)

T = TypeVar("T")

_CLASSES = re.compile(r"\\[dws]")
_NEGATED = re.compile(r"\\[DWSbB]|\[\^|\(\?<?!")
_NESTING = (AnyOf, Repeated, Series, StructuralTag, Tag, TriggeredTags)


def for_writing(constraint: T) -> T:
    """The constraint, or part of one, that a model is held to; the same object if it is narrow."""
    if isinstance(constraint, Regex):
        pattern = constraint.pattern
        is_narrow = _NEGATED.search(pattern) or not _CLASSES.search(pattern)
        if constraint.dialect != "python" or is_narrow:
            return constraint
        return dataclasses.replace(constraint, pattern="(?a)" + pattern)
    if isinstance(constraint, _NESTING):
        parts = {field.name: getattr(constraint, field.name) for field in fields(constraint)}
        narrowed = {name: _narrowed(part) for name, part in parts.items()}
        if any(narrowed[name] is not parts[name] for name in parts):
            return dataclasses.replace(constraint, **narrowed)
    return constraint


def _narrowed(value: Any) -> Any:
    """A field of a part: a part, several of them, or something else."""
    if not isinstance(value, tuple):
        return for_writing(value)
    items = tuple(map(for_writing, value))
    return value if all(map(operator.is_, items, value)) else items

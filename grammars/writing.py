"""What a model is held to while it writes: a subset of what a constraint accepts.

Validation (``Grammar.match``) keeps each dialect's meaning. Text that is written is narrower where
readers seldom expect more: ``\\d``, ``\\w`` and ``\\s`` of a Python regular expression write ASCII.
A leading ``(?u)`` opens them again. A pattern in which a class stands where less of it means more
text (in a negated set or assertion, or as ``\\D``, ``\\W``, ``\\S``, ``\\b``) is left as it is.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TypeVar

from .constraints import (
    AnyOf,
    Constraint,
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


def for_writing(constraint: Constraint) -> Constraint:
    """The constraint that a model is held to; the same object where nothing is narrower."""
    return _narrowed(constraint)


def _narrowed(value: T) -> T:
    if isinstance(value, Regex):
        pattern = value.pattern
        narrows = _CLASSES.search(pattern) and not _NEGATED.search(pattern)
        if value.dialect == "python" and narrows:
            return dataclasses.replace(value, pattern="(?a)" + value.pattern)
        return value
    if isinstance(value, tuple):
        items = tuple(map(_narrowed, value))
        return items if any(a is not b for a, b in zip(items, value, strict=True)) else value  # type: ignore[return-value]
    if isinstance(value, _NESTING):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        narrowed = {name: _narrowed(item) for name, item in fields.items()}
        if any(narrowed[name] is not fields[name] for name in fields):
            return dataclasses.replace(value, **narrowed)
    return value

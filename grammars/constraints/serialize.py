"""Constraints as JSON and back: objects distinguished by their ``kind``, fields by their names."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Mapping
from functools import cache
from typing import Annotated, Any, get_args

from pydantic import Field, TypeAdapter

from ramet.grammars.errors import ConstraintError

from .json_reader import JsonFault, read_json
from .values import Constraint, JsonValue, Part, StructuralTag

_CLASSES: dict[str, Any] = {cls.kind: cls for cls in (*get_args(get_args(Part)[0]), StructuralTag)}


def constraint_to_json(constraint: Constraint) -> dict[str, JsonValue]:
    """A constraint as plain JSON: every field, ``kind`` among them."""
    value = _plain(constraint)
    assert isinstance(value, dict)
    return value


def constraint_from_json(value: JsonValue) -> Constraint:
    """The constraint that ``constraint_to_json`` wrote. Fields with defaults may be left out.

    Raises:
        ConstraintError: with ``path`` a JSON pointer to what is wrong: an unknown kind or field,
            one that is missing, or a value of the wrong type.
    """
    found: Constraint = _read(_adapter(Annotated[Constraint, Field(discriminator="kind")]), value)
    return found


def check_fields(constraint: object) -> None:
    """Refuses a constraint, or a part, with a field that its annotation doesn't allow.

    Raises:
        ConstraintError: with ``path`` a JSON pointer to the field. What is no constraint at all
            is left to the caller.
    """
    cls: Any = type(constraint)
    if cls in _CLASSES.values():
        _read(_adapter(cls), constraint)


@cache
def _adapter(annotation: Any) -> TypeAdapter[Any]:
    return TypeAdapter(annotation)


def _read(adapter: TypeAdapter[Any], value: object) -> Any:
    try:
        return read_json(adapter, value, _field_names)
    except JsonFault as fault:
        steps = fault.path[:-1] if fault.is_absent else fault.path
        keyword = str(fault.path[-1]) if fault.path else ""
        raise ConstraintError(_pointer(steps), keyword, fault.reason) from None


def _field_names(value: Mapping[str, Any]) -> Collection[str]:
    cls = _CLASSES.get(str(value.get("kind")))
    return [field.name for field in dataclasses.fields(cls)] if cls is not None else ()


def _pointer(steps: tuple[str | int, ...]) -> str:
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in steps)


def _plain(value: object) -> JsonValue:
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: _plain(getattr(value, name)) for name in names}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def content_key(constraint: Constraint) -> str:
    """A text that is equal for equal constraints."""
    try:
        return json.dumps([type(constraint).__name__, vars(constraint)], default=vars)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConstraintError("", "", f"the constraint is not plain data: {error}") from None

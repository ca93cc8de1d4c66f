"""Constraints as JSON and back: objects distinguished by their ``kind``, fields by their names."""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Callable
from functools import cache, partial
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from ramet.grammars.errors import ConstraintError

from .values import Constraint, JsonValue

T = TypeVar("T")


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
    try:
        found = _read(value, Constraint, "")
    except RecursionError:
        raise ConstraintError("", "kind", "the constraint nests too deep") from None
    return cast(Constraint, found)


def check_fields(constraint: object, path: str = "") -> None:
    """Refuse a constraint, or a part, with a field that its annotation doesn't allow.

    Raises:
        ConstraintError: with ``path`` a JSON pointer to the field. What is no constraint at all
            is left to the caller.
    """
    if dataclasses.is_dataclass(constraint) and not isinstance(constraint, type):
        for name, hint, plainly in _checks(type(constraint)):
            value = getattr(constraint, name)
            if plainly is None or not plainly(value):
                _check(value, hint, f"{path}/{name}")


@cache
def _checks(cls: type) -> list[tuple[str, Any, Callable[[object], bool] | None]]:
    """By field, its name, its annotation, and a quick way to see that most values are right."""
    found: list[tuple[str, Any, Callable[[object], bool] | None]] = []
    for name, hint in _hints(cls).items():
        wanted = get_origin(hint) or hint
        plainly: Callable[[object], bool] | None = None
        if hint is Any:
            continue
        if wanted is Literal:
            plainly = _if_text(frozenset(get_args(hint)).__contains__)
        elif wanted in (str, int, bool, dict):
            plainly = partial(_is_exactly, wanted)
        found.append((name, hint, plainly))
    return found


def _if_text(check: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: type(value) is str and check(value)


def _is_exactly(cls: type, value: object) -> bool:
    return type(value) is cls


def _check(value: object, hint: Any, path: str) -> None:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise _wrong(path, f"expected tuple, found {type(value).__name__}")
        for i, item in enumerate(value):
            _check(item, arguments[0], f"{path}/{i}")
    elif dataclasses.is_dataclass(hint) or any(map(dataclasses.is_dataclass, arguments)):
        check_fields(value, path)
    elif hint is not Any:
        _read(value, hint, path)


def _plain(value: object) -> JsonValue:
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: _plain(getattr(value, name)) for name in names}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


@cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def _read(value: JsonValue, hint: Any, path: str) -> object:
    """``value`` converted to the type ``hint``."""
    if hint is Any:
        return value
    if dataclasses.is_dataclass(hint):
        assert isinstance(hint, type)
        return _object(value, [hint], path)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (types.UnionType, Union):
        classes = [a for a in arguments if dataclasses.is_dataclass(a)]
        if classes:
            return _object(value, classes, path)
        if value is None and types.NoneType in arguments:
            return None
        (hint,) = (a for a in arguments if a is not types.NoneType)
        return _read(value, hint, path)
    if origin is Literal:
        if value not in arguments:
            raise _wrong(path, f"{value!r} is none of {', '.join(map(repr, arguments))}")
        return value
    if origin is tuple:
        items = _typed(value, list, path)
        return tuple(_read(item, arguments[0], f"{path}/{i}") for i, item in enumerate(items))
    if origin is dict:
        return _typed(value, dict, path)
    return _typed(value, hint, path)


def _typed(value: JsonValue, wanted: type[T], path: str) -> T:
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise _wrong(path, f"expected {wanted.__name__}, found {type(value).__name__}")
    return value


def _object(value: JsonValue, classes: list[Any], path: str) -> object:
    fields = _typed(value, dict, path)
    kind = fields.get("kind", classes[0].kind if len(classes) == 1 else None)
    cls = next((c for c in classes if c.kind == kind), None)
    if cls is None:
        known = ", ".join(repr(c.kind) for c in classes)
        raise ConstraintError(path, "kind", f"{kind!r} is none of {known}")
    hints = _hints(cls)
    for name in fields:
        if name not in hints:
            raise ConstraintError(f"{path}/{name}", name, f"a {kind} has no field {name!r}")
    given = {name: _read(fields[name], hints[name], f"{path}/{name}") for name in fields}
    for field in dataclasses.fields(cls):
        is_required = (
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        )
        if is_required and field.name not in given:
            raise ConstraintError(path, field.name, f"a {kind} needs {field.name!r}")
    return cls(**given)


def _wrong(path: str, reason: str) -> ConstraintError:
    return ConstraintError(path, path.rpartition("/")[2], reason)


def content_key(constraint: Constraint) -> str:
    """A text that is equal for equal constraints."""
    try:
        return json.dumps([type(constraint).__name__, vars(constraint)], default=vars)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConstraintError("", "", f"the constraint is no plain data: {error}") from None

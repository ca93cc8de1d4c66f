"""Maps the parts of a constraint to the body's fields that they come from, for errors."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import TypeVar

from ramet.grammars.constraints import Constraint, JsonSchema, Part, StructuralTag
from ramet.grammars.constraints.writing import for_writing
from ramet.runtime.api.errors import InvalidConstraintError, InvalidRequestError
from ramet.runtime.api.paths import field_path

P = TypeVar("P", bound=Part)


@dataclass(frozen=True, slots=True)
class RequestedConstraint:
    """A constraint and the field of the body that requests it, the root of its paths.

    ``parts`` are its parts that have fields of their own.
    """

    constraint: Constraint
    field: str
    parts: tuple[tuple[Part, str], ...] = ()


class Origins:
    """The fields that the parts of one constraint come from.

    Args:
        field: named for errors that belong to no part with a field.
    """

    def __init__(self, field: str) -> None:
        self._field = field
        self._known: list[tuple[object, str, str]] = []

    @classmethod
    def of_constraint(cls, requested: RequestedConstraint) -> Origins:
        """The origins of a constraint that one field requests."""
        origins = cls(requested.field)
        origins.add_constraint(requested)
        return origins

    def add_part(self, part: P, field: str, owner: str = "") -> P:
        """Records that ``part`` comes from ``field``, and returns it.

        ``owner`` describes it in messages: ``the tool 'search'``.
        """
        self._known.append((part, field, owner))
        return part

    def add_constraint(self, requested: RequestedConstraint) -> Constraint:
        """Records a requested constraint, alone or as a part of another, and returns it."""
        constraint = requested.constraint
        self._known += [(part, field, "") for part, field in requested.parts]
        self._known.append((constraint, requested.field, ""))
        if isinstance(constraint, StructuralTag):
            self._known.append((constraint.root, f"{requested.field}.root", ""))
        return constraint

    def narrow(self, constraint: Constraint) -> Constraint:
        """Returns what a model is held to while it writes; its parts have the same origins."""
        narrowed = for_writing(constraint)
        pairs: list[tuple[object, object]] = [(constraint, narrowed)]
        for old, new in pairs:  # grows on the way
            if old is new:
                continue
            self._known += [(new, *known[1:]) for known in self._known if known[0] is old]
            if isinstance(old, tuple) and isinstance(new, tuple):
                pairs += zip(old, new, strict=True)
            elif is_dataclass(old):
                names = [field.name for field in fields(old)]
                pairs += [(getattr(old, name), getattr(new, name)) for name in names]
        return narrowed

    def locate(self, whole: Constraint, error: InvalidConstraintError) -> InvalidConstraintError:
        """Returns the error with the responsible field as its ``param``.

        ``error.pointer`` is a path through ``whole``. After the last part that comes from a field,
        the rest is a path through that field's value.
        """
        steps = error.pointer.partition(": ")[0].split("/")[1:]
        here: object = whole
        place, owner = self._field, ""
        for depth in range(len(steps) + 1):
            found = next((known for known in self._known if known[0] is here), None)
            if found is not None:
                owner = found[2]
                place = field_path(found[1], _rest(here, steps[depth:]))
            if depth < len(steps):
                here = _step(here, steps[depth])
        return _relocated(error, place, owner)


def _rest(here: object, steps: list[str]) -> str:
    """The rest of a pointer, after a part. Errors in a schema are relative to the schema's root."""
    if isinstance(here, JsonSchema):
        return "".join(f"/{step}" for step in steps)
    steps_in_body: list[str] = []
    for depth, step in enumerate(steps):
        if isinstance(here, JsonSchema):
            steps_in_body += ["schema", *steps[depth:]]
            break
        steps_in_body.append(step)
        here = _step(here, step)
    return "".join(f"/{step}" for step in steps_in_body)


def _step(here: object, step: str) -> object:
    if isinstance(here, tuple):
        return here[int(step)] if step.isdecimal() and int(step) < len(here) else None
    return getattr(here, step, None)


def _relocated(error: InvalidConstraintError, field: str, owner: str) -> InvalidConstraintError:
    of_whom = f" of {owner}" if owner else ""
    reason = error.reason or error.message
    return InvalidConstraintError(
        f"{field}{of_whom}: {reason}",
        param=field,
        code=error.code,
        pointer=error.pointer,
        reason=reason,
    )


def named_by_field(
    error: InvalidRequestError, field_of: Callable[[str], str]
) -> InvalidRequestError:
    """Returns an error about a parameter, with the name of the body's field that sets it."""
    name = error.param
    field = name and field_of(name)
    if not name or not field or field == name:
        return error
    error.message = re.sub(rf"\b{re.escape(name)}\b", field, error.message)
    error.args, error.param = (error.message,), field
    return error

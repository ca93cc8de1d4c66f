"""Where in a request's body the parts of its constraint come from, so that errors can say so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from ramet.grammars.constraints import Constraint, JsonSchema, Part, StructuralTag
from ramet.runtime.api.errors import InvalidConstraintError
from ramet.runtime.api.paths import field_path

P = TypeVar("P", bound=Part)


@dataclass(frozen=True, slots=True)
class Asked:
    """A constraint, and the field of the body that asks for it, where its own paths begin.

    ``parts`` are those of its parts that have fields of their own.
    """

    constraint: Constraint
    field: str
    parts: tuple[tuple[Part, str], ...] = ()


class Origins:
    """The fields that the parts of one constraint come from.

    Args:
        field: what is named where a fault lies in no part of its own.
    """

    def __init__(self, field: str) -> None:
        self._field = field
        self._known: list[tuple[object, str, str]] = []

    @classmethod
    def of(cls, asked: Asked) -> Origins:
        """The origin of a constraint that one field asks for."""
        origins = cls(asked.field)
        origins.note_asked(asked)
        return origins

    def note(self, part: P, field: str, owner: str = "") -> P:
        """Notes that ``part`` comes from ``field``, and hands it back.

        ``owner`` says whose it is, for people: ``the tool 'search'``.
        """
        self._known.append((part, field, owner))
        return part

    def note_asked(self, asked: Asked) -> Constraint:
        """Notes what a field asks for, alone or as a part of another, and hands it back."""
        constraint = asked.constraint
        self._known += [(part, field, "") for part, field in asked.parts]
        self._known.append((constraint, asked.field, ""))
        if isinstance(constraint, StructuralTag):
            self._known.append((constraint.root, f"{asked.field}.root", ""))
        return constraint

    def locate(self, whole: Constraint, error: InvalidConstraintError) -> InvalidConstraintError:
        """The error with the field at fault as its ``param``.

        ``error.pointer`` leads through ``whole``; from the last part on that comes from a field,
        the rest of it leads through what that field holds.
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
    """A pointer on from a part. What is wrong in a schema is told from the schema's root."""
    if isinstance(here, JsonSchema):
        return "".join(f"/{step}" for step in steps)
    told: list[str] = []
    for depth, step in enumerate(steps):
        if isinstance(here, JsonSchema):
            told += ["schema", *steps[depth:]]
            break
        told.append(step)
        here = _step(here, step)
    return "".join(f"/{step}" for step in told)


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

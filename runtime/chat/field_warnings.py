"""Warnings of a call: fields that were taken and have no effect on its answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

HEADER = b"x-ramet-warnings"
_MAX_HEADER_LEN = 1024

_MAX_SHOWN = 32
"""Most warnings that an answer lists; a body can't make an answer grow without bound."""


class FieldWarning(NamedTuple):
    """A field without effect. ``param`` is its path in the body."""

    param: str
    message: str


@dataclass(slots=True)
class FieldWarnings:
    """The warnings of one call; validation adds those of its body.

    Attributes:
        unknown_fields: "refuse" or "warn", for fields that no API knows.
        found: the warnings so far, without repetitions.
    """

    unknown_fields: str = "refuse"
    found: list[FieldWarning] = field(default_factory=list)

    def add(self, param: str, reason: str) -> None:
        """Records why the field ``param`` has no effect."""
        warning = FieldWarning(param, f"{param}: {reason}")
        if warning not in self.found and len(self.found) < _MAX_SHOWN:
            self.found.append(warning)

    def fields(self) -> dict[str, list[dict[str, str]]]:
        """The field ``warnings`` of an answer, if there are any."""
        if not self.found:
            return {}
        return {"warnings": [warning._asdict() for warning in self.found]}

    def header(self) -> tuple[bytes, bytes] | None:
        """The response header that names the fields; None without any."""
        names = ", ".join(dict.fromkeys(warning.param for warning in self.found))
        return (HEADER, names.encode("ascii", "replace")[:_MAX_HEADER_LEN]) if names else None

"""``Dialect``: the keywords of a schema language, its identifiers and references."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Rewrite = Callable[[dict[str, Any], str], dict[str, Any]]
"""From one schema object and its path to the same in JSON Schema's keywords. Subschemas stay as
they are: each is rewritten when it is read."""


@dataclass(frozen=True, eq=False)
class Dialect:
    """The meaning of a schema's keywords.

    Attributes:
        name: as in ``JsonSchema.dialect``.
        roles: the keywords that are not annotations, each with the kind of its value.
        reference_stands_alone: keywords next to ``$ref`` are ignored (draft 7 and before).
        identifiers: the keywords by which a schema names itself.
        rewrite: translates the keywords that JSON Schema doesn't have; None if there are none.
        is_closed: an unknown keyword is an error (raised by ``rewrite``), not an annotation.
        asserts_formats: ``format`` constrains values, regardless of the caller's option.
        is_shared: a schema without subschemas means the same here as in other dialects.
    """

    name: str
    roles: Mapping[str, int]
    reference_stands_alone: bool = False
    identifiers: tuple[str, ...] = ("$id",)
    rewrite: Rewrite | None = None
    is_closed: bool = False
    asserts_formats: bool = False
    is_shared: bool = True

    def without(self, keywords: frozenset[str]) -> Dialect:
        """The dialect in which some keywords are annotations."""
        kept = {name: role for name, role in self.roles.items() if name not in keywords}
        return dataclasses.replace(self, roles=kept)

    def identifier_of(self, schema: Mapping[str, Any]) -> str | None:
        """A schema's own identifiers."""
        for keyword in self.identifiers:
            found = schema.get(keyword)
            if found is not None:
                return found if isinstance(found, str) else None
        return None

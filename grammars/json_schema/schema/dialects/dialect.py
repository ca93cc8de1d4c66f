"""A dialect: which keywords a schema may use, and how it names itself and refers to others."""

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
    """What the keywords of a schema mean.

    Attributes:
        name: as in ``JsonSchema.dialect``.
        roles: the keywords that say something, each with what its value is made of.
        reference_stands_alone: what is next to ``$ref`` says nothing (draft 7 and before).
        identifiers: the keywords by which a schema names itself.
        rewrite: translates the keywords that JSON Schema doesn't have; None if there are none.
        is_closed: a keyword that it doesn't have is an error (of ``rewrite``), no annotation.
        asserts_formats: it says itself that ``format`` binds, whatever the caller prefers.
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
        """What a schema calls itself."""
        for keyword in self.identifiers:
            found = schema.get(keyword)
            if found is not None:
                return found if isinstance(found, str) else None
        return None

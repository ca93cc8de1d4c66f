"""Unions tagged by ``type``: content blocks, input items, tools."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from ramet.runtime.server.protocol.base import MISSING, UNSUPPORTED


def type_of(default: str = "") -> Callable[[Any], str]:
    """Makes a discriminator that reads ``type`` from JSON or from a model."""

    def read(value: Any) -> str:
        found = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
        return found if isinstance(found, str) else default

    return read


def supported_types(
    what: str, types: Collection[str], *, default: str = "", aliases: Collection[str] = ()
) -> BeforeValidator:
    """Makes a validator that refuses other types by name, before fields are validated.

    Args:
        what: what the objects are called, such as "content blocks".
        types: those that are supported.
        default: the type of objects without one; empty: the type is required.
        aliases: further types that are accepted but not listed.
    """
    read = type_of(default)
    names = ", ".join(types)

    def check(value: Any) -> Any:
        if not isinstance(value, dict):
            return value  # validation has a better message
        kind = read(value)
        if not kind and value.get("type") is None:
            raise PydanticCustomError(MISSING, "type is required", {"name": "type"})
        if kind not in types and kind not in aliases:
            raise PydanticCustomError(
                UNSUPPORTED,
                "{what} of type {kind} are not supported by this server; supported: {names}",
                {"name": "type", "what": what, "kind": repr(value["type"]), "names": names},
            )
        return value

    return BeforeValidator(check)

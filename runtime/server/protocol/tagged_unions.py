"""Objects that say what they are by their ``type``: content blocks, input items, tools."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from ramet.runtime.server.protocol.base import UNSUPPORTED


def type_of(default: str = "") -> Callable[[Any], str]:
    """Reads an object's type, from JSON or from a model; ``default`` where it says none."""

    def read(value: Any) -> str:
        found = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
        return found if isinstance(found, str) else default

    return read


def supported_types(
    what: str, types: Collection[str], *, default: str = "", aliases: Collection[str] = ()
) -> BeforeValidator:
    """Refuses an object of another type by name, before its fields are looked at.

    Args:
        what: what the objects are called, such as "content blocks".
        types: those that are supported.
        default: the type of an object that says none; empty: it has to say one.
        aliases: types that are taken too, and not advertised.
    """
    read = type_of(default)
    names = ", ".join(types)

    def check(value: Any) -> Any:
        if not isinstance(value, dict):
            return value  # the check of its shape has the right message
        kind = read(value)
        if kind not in types and kind not in aliases:
            shown = f"type {kind!r}" if kind else "no type"
            raise PydanticCustomError(
                UNSUPPORTED,
                "{what} of {shown} are not supported by this server; supported: {names}",
                {"name": "type", "what": what, "shown": shown, "names": names},
            )
        return value

    return BeforeValidator(check)

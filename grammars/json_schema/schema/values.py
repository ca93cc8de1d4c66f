"""JSON values in a form that is hashable, and equal exactly where JSON Schema's equality holds."""

from __future__ import annotations

import json
from collections.abc import Hashable
from decimal import Decimal
from typing import Any

from ramet.grammars.errors import ConstraintError, GrammarTooComplexError

_MAX_EXPONENT_DIGITS = 4


def decimal(number: int | float | Decimal) -> Decimal:
    """The exact value of a number as JSON would write it (0.1 is a tenth)."""
    return Decimal(repr(number)) if isinstance(number, float) else Decimal(number)


def canonical(value: Any) -> Hashable:
    """A value as a tuple of its type's name and its content.

    Numbers are decimals (1 equals 1.0), objects are sets of pairs.

    Raises:
        ConstraintError: it is no JSON value, or none that UTF-8 text can spell.
    """
    if value is None:
        return ("null",)
    if value is True:
        return ("true",)
    if value is False:
        return ("false",)
    if isinstance(value, int | float | Decimal):
        exact = decimal(value)
        if not exact.is_finite():
            raise ConstraintError("", "const", f"{value} is not a JSON value")
        return ("number", exact)
    if isinstance(value, str):
        return ("string", _text(value))
    if isinstance(value, list | tuple):
        return ("array", tuple(canonical(v) for v in value))
    if isinstance(value, dict):
        return ("object", frozenset((_text(k), canonical(v)) for k, v in value.items()))
    raise ConstraintError("", "const", f"{type(value).__name__} is not a JSON value")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ConstraintError("", "const", f"the name {value!r} is not a string")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ConstraintError("", "const", "half a surrogate pair is not a character") from None
    return value


def parse_scalar(text: bytes) -> Hashable:
    """The canonical value of a scalar's JSON text."""
    text = text.strip()
    if text[:1] in b'"tfn':
        return canonical(json.loads(text))
    exponent = text.lower().partition(b"e")[2]
    if exponent and len(exponent.lstrip(b"+-0")) > _MAX_EXPONENT_DIGITS:
        raise GrammarTooComplexError("", "uniqueItems", "a number's exponent is too large")
    return ("number", Decimal(text.decode()))

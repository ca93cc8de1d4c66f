"""Constraints with a life of their own: make them, join them, try them on a text.

>>> dated = text("on ") + regex(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
>>> bool(dated.match("on 2024-02-30"))
True
"""

from __future__ import annotations

import json as json_module
import re
from dataclasses import dataclass
from typing import Any, Literal

from ramet.grammars.constraints import (
    Choice,
    Constraint,
    Ebnf,
    FixedText,
    JsonObject,
    JsonSchema,
    JsonValue,
    Part,
    Regex,
    Series,
    StructuralTag,
    Whitespace,
)
from ramet.lang.base.errors import OutputTypeError
from ramet.lang.types.matching import MatchOutcome, match_text
from ramet.lang.types.schemas import adapter_of


@dataclass(frozen=True)
class Pattern:
    """A pattern: a sequence of constraints and literal texts.

    ``+`` joins patterns and plain strings. ``constraint`` is what the engine enforces.
    """

    parts: tuple[Constraint | str, ...]

    def __add__(self, other: Pattern | str) -> Pattern:
        return Pattern(_merged(self.parts + _parts_of(other)))

    def __radd__(self, other: str) -> Pattern:
        return Pattern(_merged(_parts_of(other) + self.parts))

    @property
    def constraint(self) -> Constraint:
        """The one constraint that the whole pattern is.

        Raises:
            OutputTypeError: an empty pattern.
        """
        if not self.parts:
            raise OutputTypeError("a pattern needs at least one part")
        if len(self.parts) == 1 and not isinstance(self.parts[0], str):
            return self.parts[0]
        if all(_is_regular(part) for part in self.parts):
            return Regex("".join(_as_regex(part) for part in self.parts))
        return _sequence(self.parts)

    def match(self, text: str) -> MatchOutcome:
        """Tries the pattern on a text, with no model.

        Raises:
            ConstraintError: the pattern can't be honoured exactly, and why.
        """
        return match_text(self.constraint, text)


def text(literal: str) -> Pattern:
    """Exactly this text."""
    return Pattern(_parts_of(literal))


def regex(pattern: str, *, dialect: Literal["python", "ecma"] = "python") -> Pattern:
    """Text that the whole of a regular expression matches."""
    return Pattern((Regex(pattern, dialect),))


def choice(*choices: str) -> Pattern:
    """Exactly one of these texts."""
    for each in choices:
        if not isinstance(each, str):
            raise OutputTypeError(f"a choice is a text, not {type(each).__name__}")
    if not choices or "" in choices:
        raise OutputTypeError("choice() takes at least one text, none of them empty")
    return Pattern((Choice(tuple(choices)),))


def json(schema: Any = None, *, whitespace: Whitespace = "compact") -> Pattern:
    """JSON: any object, a value of a schema (a dict, or JSON text), or of a type that pydantic
    knows, with its fields in their order and no others."""
    if schema is None:
        return Pattern((JsonObject(whitespace),))
    if isinstance(schema, dict | bool | str):
        return Pattern((JsonSchema(_read_schema(schema), whitespace, integers="plain"),))
    _, own = adapter_of(schema, repr(schema))
    return Pattern((JsonSchema(own, whitespace, any_order=False, integers="plain"),))


def ebnf(
    grammar: str, *, dialect: Literal["auto", "gbnf", "lark"] = "auto", start: str | None = None
) -> Pattern:
    """Text that a context-free grammar derives."""
    return Pattern((Ebnf(grammar, dialect, start),))


def _read_schema(schema: dict[str, Any] | bool | str) -> JsonValue:
    if not isinstance(schema, str):
        return schema
    try:
        return json_module.loads(schema)
    except ValueError as error:
        raise OutputTypeError(f"the schema is not JSON: {error}") from None


def _parts_of(value: Pattern | str) -> tuple[Constraint | str, ...]:
    if isinstance(value, Pattern):
        return value.parts
    if not isinstance(value, str):
        raise TypeError(f"a pattern can be joined with patterns and strings, not {value!r}")
    return (value,) if value else ()


def _merged(parts: tuple[Constraint | str, ...]) -> tuple[Constraint | str, ...]:
    merged: list[Constraint | str] = []
    for part in parts:
        if isinstance(part, str) and merged and isinstance(merged[-1], str):
            merged[-1] += part
        else:
            merged.append(part)
    return tuple(merged)


def _is_regular(part: Constraint | str) -> bool:
    if isinstance(part, Regex):
        # An inline flag counts for all that follows it, so such a pattern keeps to itself.
        return part.dialect == "python" and not part.pattern.startswith("(?")
    return isinstance(part, str | Choice)


def _as_regex(part: Constraint | str) -> str:
    if isinstance(part, str):
        return re.escape(part)
    if isinstance(part, Choice):
        return "(?:" + "|".join(re.escape(choice) for choice in part.choices) + ")"
    assert isinstance(part, Regex)
    return f"(?:{part.pattern})"


def _sequence(parts: tuple[Constraint | str, ...]) -> Constraint:
    series: list[Part] = []
    for part in parts:
        if isinstance(part, str):
            series.append(FixedText(part))
        elif isinstance(part, StructuralTag):
            series.append(part.root)
        else:
            series.append(part)
    return StructuralTag(Series(tuple(series)))

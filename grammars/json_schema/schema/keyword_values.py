"""The values of keywords, checked: bounds, numbers, names."""

from __future__ import annotations

from typing import Any

from ramet.grammars.errors import ConstraintError, GrammarTooComplexError

from .atoms import AtLeast, AtMost, MultipleOf
from .documents import Leaf
from .formula import Formula, atom
from .values import canonical, decimal

_ABOUT_NUMBERS = frozenset(
    ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "divisibleBy"]
)
_MAX_COUNT = 1_000_000_000
"""Longer than any text, so larger upper bounds are equal to this one."""


def canonical_values(leaf: Leaf, keyword: str, values: list[Any]) -> list[Any]:
    """Values of a keyword in canonical form."""
    try:
        return [canonical(v) for v in values]
    except ConstraintError as error:
        raise ConstraintError(f"{leaf.path}/{keyword}", keyword, error.reason) from None


def number(leaf: Leaf, keyword: str) -> Any:
    """A keyword's number, exactly."""
    value = leaf.schema[keyword]
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise ConstraintError(f"{leaf.path}/{keyword}", keyword, f"{keyword} must be a number")
    if value in (float("inf"), float("-inf")):
        raise ConstraintError(f"{leaf.path}/{keyword}", keyword, f"{keyword} must be finite")
    return decimal(value)


def bounds(
    leaf: Leaf, low_keyword: str, high_keyword: str, default_low: int = 0
) -> tuple[int, int | None]:
    """The least and the most that a pair of keywords allow."""
    if low_keyword not in leaf.schema and high_keyword not in leaf.schema:
        return default_low, None
    found: list[int | None] = []
    for keyword, default in ((low_keyword, default_low), (high_keyword, None)):
        value = leaf.schema.get(keyword, default)
        if value is not None or keyword in leaf.schema:
            whole = isinstance(value, int | float) and not isinstance(value, bool)
            if not whole or value < 0 or value % 1:
                raise ConstraintError(
                    f"{leaf.path}/{keyword}", keyword, f"{keyword} must be a whole number from 0"
                )
            value = int(value)
            if value > _MAX_COUNT and keyword == low_keyword:
                raise GrammarTooComplexError(
                    f"{leaf.path}/{keyword}", keyword, f"{keyword} is over {_MAX_COUNT}"
                )
            value = min(value, _MAX_COUNT)
        found.append(value)
    assert found[0] is not None
    return found[0], found[1]


def name_list(leaf: Leaf, keyword: str) -> list[str]:
    """A keyword's list of names."""
    value = leaf.schema.get(keyword, [])
    if isinstance(value, bool):
        # Draft 3 marks a property as required in its own schema; its meaning is not the object's.
        return []
    if not isinstance(value, list) or any(not isinstance(n, str) for n in value):
        raise ConstraintError(
            f"{leaf.path}/{keyword}", keyword, f"{keyword} must be an array of strings"
        )
    return value


def subschemas(leaf: Leaf, keyword: str) -> dict[str, Any]:
    """A keyword's object; empty without."""
    value = leaf.schema.get(keyword, {})
    if not isinstance(value, dict):
        raise ConstraintError(f"{leaf.path}/{keyword}", keyword, f"{keyword} must be an object")
    return value


def number_parts(leaf: Leaf) -> list[Formula]:
    """The conditions of the keywords for numbers."""
    schema = leaf.schema
    parts: list[Formula] = []
    if _ABOUT_NUMBERS.isdisjoint(schema):
        return parts
    for keyword, exclusive_keyword, kind in (
        ("minimum", "exclusiveMinimum", AtLeast),
        ("maximum", "exclusiveMaximum", AtMost),
    ):
        exclusive = schema.get(exclusive_keyword)
        if keyword in schema:
            parts.append(atom(kind(number(leaf, keyword), exclusive is True)))
        if exclusive is not None and not isinstance(exclusive, bool):
            parts.append(atom(kind(number(leaf, exclusive_keyword), True)))
    for keyword in ("multipleOf", "divisibleBy"):
        if keyword in schema and (keyword == "multipleOf" or "multipleOf" not in schema):
            divisor = number(leaf, keyword)
            if divisor <= 0:
                raise ConstraintError(
                    f"{leaf.path}/{keyword}", keyword, f"{keyword} must be above 0"
                )
            parts.append(atom(MultipleOf(divisor)))
    return parts

"""The automaton of the numbers that a formula allows."""

from __future__ import annotations

from decimal import Decimal

from ramet.grammars.json_schema.schema.atoms import (
    Integer,
    MultipleOf,
    NumberIs,
)
from ramet.grammars.json_schema.schema.formula import (
    Formula,
    all_of,
    any_of,
)
from ramet.grammars.json_schema.schema.number_sets import (
    Regions,
    intervals_of,
    is_order,
    is_order_or_integer,
)
from ramet.grammars.limits import RegularLimits
from ramet.grammars.regular import (
    EMPTY,
    Dfa,
    intersect_all,
    union_all,
)  # fmt: skip
from ramet.grammars.regular import numbers as number_languages
from ramet.grammars.regular.numbers.intervals import intervals_dfa

_FEW_POINTS = 1


def number_dfa(formula: Formula, limits: RegularLimits, *, exponents: bool) -> Dfa:
    """The texts of the numbers that a typed formula allows, with or without exponents."""
    if is_order(formula):
        return intervals_dfa(intervals_of(formula), exponents=exponents)
    universe = number_languages.spellings(exponents=exponents)
    if formula.op != "atom" and is_order_or_integer(formula):
        return _of_regions(formula, limits, exponents=exponents)
    if formula.op == "atom":
        value = formula.parts[0]
        if isinstance(value, MultipleOf):
            return number_languages.multiples(value.divisor, exponents=exponents)
        if isinstance(value, NumberIs):
            return number_languages.equal_to_any(value.values, exponents=exponents)
        assert isinstance(value, Integer)
        return number_languages.integers(exponents=exponents)
    parts = list(formula.operands)
    if formula.op == "all":
        # Values that are left out, in one step.
        points = [v for p in parts for v in _excluded_numbers(p)]
        rest = all_of(p for p in parts if not _excluded_numbers(p))
        if len(points) > _FEW_POINTS and rest.op != "false":
            left = number_dfa(rest, limits, exponents=exponents) if rest.op != "true" else universe
            excluded = number_languages.equal_to_any(points, exponents=exponents)
            return left.difference(excluded, limits)
    if formula.op in ("all", "any"):
        # All bounds together.
        bounds = [p for p in parts if is_order(p)]
        joined = all_of(bounds) if formula.op == "all" else any_of(bounds)
        parts = [*([joined] if bounds else []), *(p for p in parts if not is_order(p))]
    dfas = [number_dfa(p, limits, exponents=exponents) for p in parts]
    if formula.op == "not":
        return universe.difference(dfas[0], limits)
    if formula.op == "all":
        return intersect_all(dfas, limits)
    if formula.op == "any":
        return union_all(dfas, limits)
    return exactly_one(dfas, universe, limits)


def _of_regions(formula: Formula, limits: RegularLimits, *, exponents: bool) -> Dfa:
    """Of a formula about order and integers: its integers and its non-integers, each in one go."""
    regions = Regions((formula,))
    cells = regions.cells_of(formula)
    whole, broken = (regions.intervals(cells, integers=odd) for odd in (True, False))
    integers = number_languages.integers(exponents=exponents)
    found = intervals_dfa(whole, exponents=exponents) if whole else EMPTY
    if whole == broken:
        return found
    found = intersect_all([found, integers], limits)
    if broken:
        others = intervals_dfa(broken, exponents=exponents).difference(integers, limits)
        found = union_all([found, others], limits)
    return found


def _excluded_numbers(formula: Formula) -> frozenset[Decimal]:
    """The values that a formula excludes, if it has no other condition."""
    if formula.op == "not" and formula.operands[0].op == "atom":
        value = formula.operands[0].parts[0]
        if isinstance(value, NumberIs):
            return value.values
    return frozenset()


def exactly_one(parts: list[Dfa], universe: Dfa, limits: RegularLimits) -> Dfa:
    """What is in one of some languages, and in no second one."""
    once = any_ = EMPTY
    for part in parts:
        once = once.difference(part, limits).union(part.difference(any_, limits), limits)
        any_ = any_.union(part, limits)
    return once.intersect(universe, limits)

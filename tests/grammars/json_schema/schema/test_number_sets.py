"""Promised: a formula over numbers has the same members as intervals, as a list, and as texts."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.grammars import CompileLimits, ConstraintError, GrammarCompiler, JsonSchema, Vocabulary
from ramet.grammars.json_schema.schema.atoms import AtLeast, AtMost, Integer, MultipleOf, NumberIs
from ramet.grammars.json_schema.schema.formula import Formula, all_of, any_of, atom, negate, one_of
from ramet.grammars.json_schema.schema.number_sets import (
    Regions,
    allows,
    intervals_of,
    is_order,
    joint_truths,
)
from ramet.grammars.json_schema.solver.value_sets.languages import Languages
from ramet.grammars.regular.numbers import equal_to_any, spellings

NUMBERS = [Decimal(t) for t in ("-20", "-1.5", "-1", "0", "0.25", "1", "2", "9.75", "10", "1e21")]
BYTES = Vocabulary.from_tokens([bytes((i,)) for i in range(256)] + [None], {256})

orders = st.one_of(
    st.builds(AtLeast, st.sampled_from(NUMBERS), st.booleans()),
    st.builds(AtMost, st.sampled_from(NUMBERS), st.booleans()),
    st.builds(NumberIs, st.frozensets(st.sampled_from(NUMBERS), min_size=1, max_size=3)),
).map(atom)
steps = st.one_of(
    st.just(Integer()), st.builds(MultipleOf, st.sampled_from([Decimal("0.5"), Decimal(3)]))
).map(atom)


def formulas(leaves: st.SearchStrategy[Formula]) -> st.SearchStrategy[Formula]:
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            inner.map(negate),
            *(st.lists(inner, min_size=1, max_size=3).map(f) for f in (all_of, any_of, one_of)),
        ),
        max_leaves=5,
    )


@settings(max_examples=200, deadline=None)
@given(formulas(orders), st.sampled_from(NUMBERS), st.sampled_from(["0", "1e-9", "-1e-9", "3"]))
def test_intervals_hold_what_a_formula_allows(formula: Formula, near: Decimal, step: str) -> None:
    assert is_order(formula)
    number = near + Decimal(step)
    inside = [
        i
        for i in intervals_of(formula)
        if (i.low is None or number > i.low or (number == i.low and not i.low_open))
        and (i.high is None or number < i.high or (number == i.high and not i.high_open))
    ]
    assert len(inside) == allows(formula, number)


wholes = st.just(atom(Integer()))
near_numbers = st.sampled_from([n + d for n in NUMBERS for d in map(Decimal, ("0", "0.5", "-3"))])


@settings(max_examples=200, deadline=None)
@given(formulas(st.one_of(orders, wholes)), near_numbers)
def test_regions_hold_what_a_formula_of_order_and_integers_allows(
    formula: Formula, number: Decimal
) -> None:
    regions = Regions((formula,))
    is_whole = number == number.to_integral_value()
    inside = [
        i
        for i in regions.intervals(regions.cells_of(formula), integers=is_whole)
        if (i.low is None or number > i.low or (number == i.low and not i.low_open))
        and (i.high is None or number < i.high or (number == i.high and not i.high_open))
    ]
    assert len(inside) == allows(formula, number)
    dfa = Languages(CompileLimits()).numbers(formula)
    assert dfa.accepts(f"{number:f}".encode()) == allows(formula, number)


@settings(max_examples=200, deadline=None)
@given(st.lists(formulas(st.one_of(orders, wholes)), min_size=1, max_size=4), near_numbers)
def test_joint_truths_are_those_that_numbers_have(together: list[Formula], near: Decimal) -> None:
    found = joint_truths(together)
    assert len(set(found)) == len(found)
    languages = Languages(CompileLimits())
    assert tuple(allows(f, near) for f in together) in found
    for truths in found:
        signed = [f if t else negate(f) for f, t in zip(together, truths, strict=True)]
        assert languages.has_numbers(all_of(signed))


@settings(max_examples=150, deadline=None)
@given(formulas(st.one_of(orders, steps)), st.sampled_from(NUMBERS), st.sampled_from(["0", "0.5"]))
def test_texts_are_of_the_numbers_that_a_formula_allows(
    formula: Formula, near: Decimal, step: str
) -> None:
    languages = Languages(CompileLimits())
    number = near + Decimal(step)
    dfa = languages.numbers(formula)
    assert languages.has_numbers(formula) == (not dfa.is_empty)
    for text in {f"{number:f}", f"{number:f}".rstrip(".0") or "0", str(number).lower()}:
        if spellings().accepts(text.encode()) and Decimal(text) == number:
            assert dfa.accepts(text.encode()) == allows(formula, number)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.integers(-(10**20), 10**20).map(Decimal),
            st.floats(allow_nan=False, allow_infinity=False).map(lambda x: Decimal(repr(x))),
            st.sampled_from(NUMBERS),
        ),
        max_size=30,
    ),
    st.booleans(),
)
def test_a_list_of_numbers_is_each_of_them(values: list[Decimal], exponents: bool) -> None:
    dfa = equal_to_any(values, exponents=exponents)
    for value in [*values, *NUMBERS]:
        mantissa, _, exponent = f"{value:e}".partition("e")
        texts = [f"{value:f}", f"{mantissa}E{int(exponent):+d}"]
        if "." not in texts[0]:
            texts.append(texts[0] + ".00")
        for text in texts:
            in_universe = spellings(exponents=exponents).accepts(text.encode())
            assert dfa.accepts(text.encode()) == (in_universe and value in values), text
    assert dfa.is_subset(spellings(exponents=exponents))


@pytest.mark.parametrize("scale", [1, 7, 0.001])
def test_thousands_of_numbers_are_one_enum(scale: float) -> None:
    values = [round(scale * i * i, 3) for i in range(5000)]
    grammar = GrammarCompiler(BYTES).compile(JsonSchema({"enum": values}))
    for value in values[::499]:
        assert grammar.match(str(value))
    assert not grammar.match(str(values[-1] + 1))
    assert grammar.match(f"{values[70]}0" if "." in str(values[70]) else f"{values[70]}.0")


def test_a_bound_of_too_many_digits_is_refused_when_compiled() -> None:
    schema = {"properties": {f"p{i}": {"minimum": i} for i in range(40)}}
    schema["properties"]["huge"] = {"minimum": 10**4100}
    with pytest.raises(ConstraintError):
        GrammarCompiler(BYTES).compile(JsonSchema(schema))

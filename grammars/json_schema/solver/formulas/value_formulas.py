"""Formulas of listed values, and of properties."""

from __future__ import annotations

from typing import Any

from ramet.grammars.json_schema.schema.atoms import (
    Const,
    Has,
    Items,
    Length,
    NumberIs,
    Properties,
    TextIs,
)
from ramet.grammars.json_schema.schema.formula import (
    FALSE,
    TRUE,
    Formula,
    all_of,
    any_of,
    atom,
    conjuncts,
)


def const_formula(value: Any, kind: str) -> Formula:
    """The values of type ``kind`` that equal a canonical value."""
    name = value[0]
    if name != kind:
        return FALSE
    if kind == "string":
        return atom(TextIs(frozenset((value[1],))))
    if kind == "number":
        return atom(NumberIs(frozenset((value[1],))))
    if kind == "object":
        names = tuple((k, atom(Const(v))) for k, v in sorted(value[1], key=lambda p: p[0]))
        return all_of([atom(Properties(names, (), FALSE)), *(atom(Has(k)) for k, _ in names)])
    if kind == "array":
        nodes = tuple(atom(Const(v)) for v in value[1])
        return all_of([atom(Items(nodes, FALSE)), atom(Length(len(nodes), len(nodes)))])
    return TRUE


def values_formula(values: list[Any], kind: str) -> Formula:
    """The values of type ``kind`` that equal one of some canonical values."""
    mine = [v for v in values if v[0] == kind]
    if not mine:
        return FALSE
    if kind == "string":
        return atom(TextIs(frozenset(v[1] for v in mine)))
    if kind == "number":
        return atom(NumberIs(frozenset(v[1] for v in mine)))
    return any_of(const_formula(v, kind) for v in mine)


def join_properties(formula: Formula) -> Formula:
    """A conjunction whose ``Properties`` about names alone are one."""
    plain: dict[Formula, Properties] = {}
    for part in conjuncts(formula):
        value = part.parts[0] if part.op == "atom" else None
        if isinstance(value, Properties) and not value.patterns and value.rest.op == "true":
            plain[part] = value
    if len(plain) < 2:
        return formula
    names: dict[str, list[Formula]] = {}
    for properties in plain.values():
        for name, node in properties.names:
            names.setdefault(name, []).append(node)
    together = atom(Properties(tuple((n, all_of(f)) for n, f in names.items()), (), TRUE))
    return all_of([together, *(p for p in conjuncts(formula) if p not in plain)])

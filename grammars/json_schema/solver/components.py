"""Splits conditions on an object into independent components, each of which is decided alone.

Thirty ``if`` chains about different properties are thirty small problems, not one with all their
combinations.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from ramet.grammars.json_schema.schema.atoms import Has, Properties, Size
from ramet.grammars.json_schema.schema.formula import Formula, all_of, atoms, conjuncts

Component = tuple[Formula, int]
"""A part of a conjunction, with the labels of the names that it mentions, as bits."""


def independent_parts(formula: Formula, label_of: Mapping[str, int]) -> list[Component]:
    """The components of a conjunction: it can be met exactly if each of them can.

    What must hold of properties is a condition on each of them, so it is part of every component.
    """
    shared: list[Formula] = []
    components: list[tuple[list[Formula], int]] = []
    for part in conjuncts(formula):
        if part.op == "atom" and isinstance(part.parts[0], Properties):
            shared.append(part)
            continue
        labels = _labels_of(part, label_of)
        if labels is None:
            return [(formula, -1)]
        joined = [part]
        others = []
        for parts, mentioned in components:
            if mentioned & labels:
                joined = [*parts, *joined]
                labels |= mentioned
            else:
                others.append((parts, mentioned))
        components = [*others, (joined, labels)]
    if len(components) < 2:
        return [(formula, -1)]
    return [(all_of([*shared, *parts]), labels) for parts, labels in components]


def _labels_of(part: Formula, label_of: Mapping[str, int]) -> int | None:
    """The labels of the names that a formula mentions; None if it is about all names."""
    labels = 0
    for value in atoms(part):
        names: list[str] = []
        if isinstance(value, Has):
            names = [value.name]
        elif isinstance(value, Properties) and not value.patterns and value.rest.op == "true":
            names = [name for name, _ in value.names]
        elif isinstance(value, Size | Properties):
            return None
        for name in names:
            if name in label_of:
                labels |= 1 << label_of[name]
    return labels


def asks_no_wrong_value(formula: Formula) -> bool:
    """Whether no part of a formula requires a property's value to be invalid."""
    if formula.op in ("not", "one"):
        return not any(isinstance(a, Properties) for a in atoms(formula))
    return formula.op == "atom" or all(map(asks_no_wrong_value, formula.operands))


def conditions_on_names(
    conditions: Iterable[Properties], label_of: Mapping[str, int]
) -> dict[Hashable, int]:
    """The conditions on listed properties alone, with these names' labels as bits."""
    return {
        a: sum(1 << label_of[name] for name, node in a.names if node.op != "true")
        for a in conditions
        if not a.patterns and a.rest.op == "true" and all(name in label_of for name, _ in a.names)
    }

"""Objects that must differ from given ones: a sufficient condition that needs no search.

An item of an array with ``uniqueItems`` must meet its schema and the negations of the present
items. As long as another property with infinitely many values may follow, the object can still
differ from all of them; so a decision costs no more after a hundred items than after two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ramet.grammars.json_schema.schema.atoms import Const, Has, Properties
from ramet.grammars.json_schema.schema.formula import Formula, all_of, conjuncts
from ramet.grammars.json_schema.schema.number_sets import (
    Regions,
    is_order_or_integer,
)

from .children import Child
from .object_search import bits_of
from .solver import Solver
from .value_sets.text_sets import TextSet

Formulas = tuple[Formula, ...]

_ONE_CLASS = 2
"""The label of the first name, where there is one class of other names."""

_MANY = 1 << 20
"""More values than an array has items."""


class FollowedObject(Protocol):
    """The part of an object's plan that is used here."""

    solver: Solver
    formulas: tuple[Formula, ...]
    names: list[str]
    classes: list[TextSet]
    first_name: int
    num_labels: int

    def node_of(self, properties: Properties, label: int) -> Formula: ...

    def split(self, residual: Formulas) -> tuple[list[Properties], list[Properties]]: ...

    def child(self, residual: Formulas, label: int) -> Child: ...

    def after_child(
        self, residual: Formulas, child: Child, verdict: tuple[bool, ...]
    ) -> Formulas: ...

    def floor_after(self, label: int, floor: int) -> int: ...

    def can_end_with(
        self,
        residual: Formulas,
        seen: int,
        count: int,
        spent: int,
        goals: Sequence[tuple[bool, ...]],
        *,
        ordered_from: int,
    ) -> bool: ...


class Differing:
    """An object that meets a *base*, and is none of some given objects.

    The base has the same plan for all given objects, so its answers are cached.

    Args:
        base: the plan of the formula without the given objects. Its labels are the first of those
            of the whole formula; the others are names that it doesn't distinguish.
        in_order: properties come in the order of their labels.
    """

    def __init__(self, base: FollowedObject, *, in_order: bool) -> None:
        self._base = base
        self._in_order = in_order
        must, may = base.split(base.formulas)
        self._endless: list[int] = []
        for label in range(base.num_labels - 1, 0, -1):
            node = all_of([base.node_of(properties, label) for properties in must])
            # Nothing else may depend on the value.
            if all(base.node_of(properties, label).op == "true" for properties in may) and (
                base.solver.satisfiable(node)
                if label < base.first_name
                else _is_endless(base.solver, node)
            ):
                self._endless.append(label)

    @classmethod
    def of(cls, plan: FollowedObject, *, in_order: bool) -> Differing | None:
        """An object plan's base and given objects, if its formula has that form; else None."""
        formula = plan.formulas[0]
        left = _without_excluded(formula)
        if left is formula or len(plan.formulas) > 1:
            return None
        base: FollowedObject = plan.solver.object_plan((left,))  # type: ignore[assignment]
        if (
            base.first_name != plan.first_name
            or base.first_name > _ONE_CLASS
            or any(texts.size is not None for texts in base.classes)
            or base.names != plan.names[: len(base.names)]
        ):
            return None
        return cls(base, in_order=in_order)

    def live(
        self, residual: Formula, seen: int, count: int, floor: int, free: int
    ) -> tuple[int, int]:
        """Of ``free`` labels those that certainly may come next, and those that need a search.

        Args:
            residual, seen, count, floor: as in an ``ObjectFrame``.
        """
        base, solver = self._base, self._base.solver
        left = (_without_excluded(residual),)
        sure = unsure = 0
        for label in bits_of(free):
            own = self._label(label)
            if own == 0:
                continue
            child = base.child(left, own)
            if not solver.satisfiable(child.nodes[0]):
                continue
            after_floor = base.floor_after(own, floor) if self._in_order else 0
            for verdict in solver.verdicts(child.nodes):
                after = base.after_child(left, child, verdict)
                if self._has_room(after, seen, count, own, after_floor, is_written=False):
                    sure |= 1 << label
                    break
                unsure |= self._can_end(after, seen, count, own, after_floor) << label
        return sure, unsure & ~sure

    def leaves_room(self, residual: Formula, seen: int, count: int, floor: int, label: int) -> bool:
        """Whether an object certainly can still differ after a property's value.

        Args:
            residual: what is left after that value.
            seen, count, floor: as before it.
        """
        own = self._label(label)
        after_floor = self._base.floor_after(own, floor) if self._in_order else 0
        left = (_without_excluded(residual),)
        return own != 0 and self._has_room(left, seen, count, own, after_floor, is_written=True)

    def _label(self, label: int) -> int:
        """The base's label of a property; 0 if there is none."""
        base = self._base
        return label if label < base.num_labels else base.first_name - 1

    def _has_room(
        self, after: Formulas, seen: int, count: int, label: int, floor: int, *, is_written: bool
    ) -> bool:
        for other in self._endless:
            if other == label and not is_written:
                more, first = 0, 0
            elif other < self._base.first_name:
                more, first = 1, 0
            elif other == label or seen >> other & 1 or other < floor:
                continue
            else:
                more, first = 1, 1 << other
            if self._can_end(after, seen | first, count + more, label, floor):
                return True
        return False

    def _can_end(self, after: Formulas, seen: int, count: int, label: int, floor: int) -> bool:
        base = self._base
        seen &= (1 << base.num_labels) - 1
        if label >= base.first_name:
            seen |= 1 << label
        base.solver.begin()
        return base.can_end_with(after, seen, count + 1, 0, ((),), ordered_from=floor)


def _without_excluded(formula: Formula) -> Formula:
    """A typed formula over objects without its parts that rule out one object each."""
    parts = conjuncts(formula)
    left = [p for p in parts if not (p.op == "not" and _excludes_one(p.operands[0]))]
    return formula if len(left) == len(parts) else all_of(left)


def _excludes_one(formula: Formula) -> bool:
    """Whether a formula is of one object: it has these properties with these values, no others."""
    found = [p.parts[0] for p in conjuncts(formula) if p.op == "atom"]
    properties = [a for a in found if isinstance(a, Properties)]
    return (
        len(found) == len(conjuncts(formula))
        and len(properties) == 1
        and all(isinstance(a, Has | Properties) for a in found)
        and properties[0].rest.op == "false"
        and not properties[0].patterns
        and all(n.op == "atom" and isinstance(n.parts[0], Const) for _, n in properties[0].names)
    )


def _is_endless(solver: Solver, node: Formula) -> bool:
    """Whether a node certainly has infinitely many values."""
    known = solver.endless.get(node)
    if known is None:
        typer = solver.typer
        known = solver.endless[node] = (
            _has_endless_numbers(typer.typed(node, "number"))
            or _has_endless_texts(solver.languages.texts(typer.typed(node, "string")))
            or typer.typed(node, "object").op == "true"
            or typer.typed(node, "array").op == "true"
        )
    return known


def _has_endless_texts(texts: TextSet) -> bool:
    if texts.base is not None:
        return texts.high is None and texts.base.num_members is None
    return texts.size is None


def _has_endless_numbers(formula: Formula) -> bool:
    if formula.op in ("true", "false") or not is_order_or_integer(formula):
        return formula.op == "true"
    regions = Regions((formula,))
    cells = regions.cells_of(formula)
    return any(
        i.low is None or i.high is None or i.high - i.low >= (_MANY if integers else 1)
        for integers in (True, False)
        for i in regions.intervals(cells, integers=integers)
    )

"""The values of a node that has few of them."""

from __future__ import annotations

from collections.abc import Hashable
from decimal import Decimal
from typing import TYPE_CHECKING

from .atoms import AtLeast, AtMost, Const, Integer, NumberIs
from .formula import Formula, all_of, atom, conjuncts
from .languages import members_of
from .number_sets import allows
from .schema import Leaf
from .values import canonical

if TYPE_CHECKING:
    from .solver import Solver

_MOST = 512


def values_of(solver: Solver, node: Formula) -> frozenset[Hashable] | None:
    """All values that satisfy a node, in canonical form; None if there may be many."""
    for part in conjuncts(node):
        value = part.parts[0] if part.op == "atom" else None
        listed: list[Hashable] | None = None
        if isinstance(value, Const):
            listed = [value.value]
        elif isinstance(value, Leaf) and isinstance(value.schema, dict):
            if "const" in value.schema:
                listed = [canonical(value.schema["const"])]
            elif isinstance(value.schema.get("enum"), list):
                listed = [canonical(v) for v in value.schema["enum"]]
        if listed is not None and len(listed) <= _MOST:
            return frozenset(
                v for v in listed if solver.satisfiable(all_of([node, atom(Const(v))]))
            )
    found: set[Hashable] = set()
    for kind in ("null", "true", "false"):
        if solver.has_kind(node, kind):
            found.add((kind,))
    for kind in ("object", "array"):
        if solver.has_kind(node, kind):
            return None
    texts = solver.languages.texts(solver.typer.typed(node, "string"))
    if texts.size is None or texts.size > _MOST:
        return None
    found.update(("string", t) for t in members_of(texts))
    numbers = _numbers(solver.typer.typed(node, "number"))
    if numbers is None:
        return None
    found.update(("number", n) for n in numbers)
    return frozenset(found)


def _numbers(formula: Formula) -> set[Decimal] | None:
    if formula.op == "false":
        return set()
    low: Decimal | None = None
    high: Decimal | None = None
    integer = False
    listed: frozenset[Decimal] | None = None
    for part in conjuncts(formula):
        value = part.parts[0] if part.op == "atom" else None
        if isinstance(value, NumberIs):
            listed = value.values
        elif isinstance(value, Integer):
            integer = True
        elif isinstance(value, AtLeast):
            low = value.bound if low is None else max(low, value.bound)
        elif isinstance(value, AtMost):
            high = value.bound if high is None else min(high, value.bound)
    if listed is None:
        if not integer or low is None or high is None or high - low > _MOST:
            return None
        listed = frozenset(Decimal(n) for n in range(int(low) - 1, int(high) + 2))
    return {n for n in listed if allows(formula, n)}

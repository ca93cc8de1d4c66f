"""Lists the values of nodes that have finitely many and few."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable
from decimal import Decimal

from ramet.grammars.json_schema.schema.atoms import (
    AtLeast,
    AtMost,
    Const,
    Integer,
    Items,
    Length,
    NumberIs,
    Properties,
)
from ramet.grammars.json_schema.schema.documents import Leaf
from ramet.grammars.json_schema.schema.formula import Formula, all_of, atom, conjuncts
from ramet.grammars.json_schema.schema.number_sets import allows
from ramet.grammars.json_schema.schema.values import canonical

from .solver import Solver
from .value_sets.text_sets import members_of

_MOST = 512
_MOST_CANDIDATES = 4096
_Values = frozenset[Hashable]


def values_of(solver: Solver, node: Formula) -> _Values | None:
    """All values that satisfy a node, in canonical form; None if there may be many.

    There are finite sets of arrays and objects, too: of few items or few names, each of
    which has few values. A node that is inside itself has values without end.
    """
    sets = solver.value_sets
    if node in sets:
        return sets[node]
    sets[node] = None  # While it is computed: a value that contains itself is in an infinite set.
    try:
        found = _values_of(solver, node)
    finally:
        del sets[node]
    if not solver.is_leaning:
        sets[node] = found
    return found


def _values_of(solver: Solver, node: Formula) -> _Values | None:
    listed = _listed(node)
    if listed is not None and len(listed) <= _MOST:
        return _those_that_fit(solver, node, listed)
    found: set[Hashable] = set()
    for kind in ("null", "true", "false"):
        if solver.has_kind(node, kind):
            found.add((kind,))
    texts = solver.languages.texts(solver.typer.typed(node, "string"))
    if texts.size is None or texts.size > _MOST:
        return None
    found.update(("string", t) for t in members_of(texts))
    numbers = _numbers(solver.typer.typed(node, "number"))
    if numbers is None:
        return None
    found.update(("number", n) for n in numbers)
    for kind, candidates in (("array", _arrays), ("object", _objects)):
        if solver.has_kind(node, kind):
            some = candidates(solver, solver.typer.typed(node, kind))
            if some is None:
                return None
            found |= _those_that_fit(solver, node, some)
    return frozenset(found) if len(found) <= _MOST else None


def _those_that_fit(solver: Solver, node: Formula, values: Iterable[Hashable]) -> _Values:
    return frozenset(v for v in values if solver.satisfiable(all_of([node, atom(Const(v))])))


def _listed(node: Formula) -> list[Hashable] | None:
    for part in conjuncts(node):
        value = part.parts[0] if part.op == "atom" else None
        if isinstance(value, Const):
            return [value.value]
        if isinstance(value, Leaf) and isinstance(value.schema, dict):
            if "const" in value.schema:
                return [canonical(value.schema["const"])]
            if isinstance(value.schema.get("enum"), list):
                return [canonical(v) for v in value.schema["enum"]]
    return None


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
        if low is None or high is None or high - low > _MOST:
            return None
        if low == high:
            listed = frozenset((low,))
        elif integer:
            listed = frozenset(Decimal(n) for n in range(int(low) - 1, int(high) + 2))
        else:
            return None
    return {n for n in listed if allows(formula, n)}


def _arrays(solver: Solver, formula: Formula) -> list[Hashable] | None:
    """A finite set of arrays that has all that a formula allows; None if none is plain."""
    atoms = [p.parts[0] for p in conjuncts(formula) if p.op == "atom"]
    items = [a for a in atoms if isinstance(a, Items)]
    most = min((a.high for a in atoms if isinstance(a, Length) and a.high is not None), default=-1)
    found: list[Hashable] = []
    choices: list[list[Hashable]] = []
    for length in itertools.count():
        found.extend(("array", chosen) for chosen in itertools.product(*choices))
        if length == most:
            return found
        node = all_of(a.prefix[length] if length < len(a.prefix) else a.rest for a in items)
        if not solver.satisfiable(node):
            return found
        values = values_of(solver, node)
        if values is None or (most < 0 and length > max((len(a.prefix) for a in items), default=0)):
            return None
        choices.append(list(values))
        if len(found) + math.prod(map(len, choices)) > _MOST_CANDIDATES:
            return None
    raise AssertionError("it has returned")


def _objects(solver: Solver, formula: Formula) -> list[Hashable] | None:
    """A finite set of objects that has all that a formula allows; None if none is plain."""
    plan = solver.object_plan((formula,))
    holds = [
        p.parts[0]
        for p in conjuncts(formula)
        if p.op == "atom" and isinstance(p.parts[0], Properties)
    ]
    choices: list[list[Hashable]] = []
    for label in range(1, plan.num_labels):
        node = all_of(plan.node_of(a, label) for a in holds)
        if not solver.satisfiable(node):
            continue
        values = values_of(solver, node) if label >= plan.first_name else None
        if values is None:
            return None
        name = plan.names[label - plan.first_name]
        choices.append([None, *((name, v) for v in values)])
        if math.prod(map(len, choices)) > _MOST_CANDIDATES:
            return None
    return [
        ("object", frozenset(c for c in chosen if c is not None))
        for chosen in itertools.product(*choices)
    ]

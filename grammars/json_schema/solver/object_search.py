"""Searches for properties to add to an object so that a case of a formula is met."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Protocol

from ramet.grammars.json_schema.schema.atoms import Has, Properties, Size
from ramet.grammars.json_schema.schema.formula import Formula, all_of, negate

from .solver import Solver
from .tableau import Case
from .value_sets.text_sets import TextSet


class SearchedObject(Protocol):
    """The interface of an object's plan for a search."""

    solver: Solver
    label_of: dict[str, int]
    first_name: int
    classes: list[TextSet]

    def node_of(self, properties: Properties, label: int) -> Formula: ...


def can_meet(plan: SearchedObject, case: Case, free: int, count: int) -> bool:
    """Whether properties with labels in ``free`` can meet a case."""
    needed = 0
    low, high = 0, 1 << 60
    outside: list[Size] = []
    holds: list[Properties] = []
    fails: list[Properties] = []
    for value, truth in case.items():
        if isinstance(value, Has):
            bit = 1 << plan.label_of[value.name]
            if truth:
                needed |= bit
            else:
                free &= ~bit
        elif isinstance(value, Size):
            if not truth:
                outside.append(value)
                continue
            low = max(low, value.low)
            high = high if value.high is None else min(high, value.high)
        else:
            assert isinstance(value, Properties)
            (holds if truth else fails).append(value)
    if needed & ~free:
        return False
    must = _Must(plan, holds)
    if not all(plan.solver.satisfiable(must[label]) for label in bits_of(needed)):
        return False
    # What a needed property's value rules out needs no wrong value of its own.
    disjoint = plan.solver.are_disjoint
    fails = [
        a for a in fails
        if not any(disjoint(must[n], plan.node_of(a, n)) for n in bits_of(needed))
    ]  # fmt: skip
    for low_, high_ in _size_ranges(low, high, outside):
        if _can_fail(plan, fails, {}, free, must, needed, count, low_, high_):
            return True
    return False


def _can_fail(
    plan: SearchedObject,
    fails: list[Properties],
    chosen: dict[int, list[Formula]],
    free: int,
    must: _Must,
    needed: int,
    count: int,
    low: int,
    high: int,
) -> bool:
    """Whether each atom in ``fails`` can be violated by a property of its own or a shared one.

    ``chosen`` holds, by label, what its value must satisfy in addition to ``must``.
    """
    if not fails:
        used = needed
        extra = 0
        for label, nodes in chosen.items():
            if label < plan.first_name:
                extra += len(nodes)
            else:
                used |= 1 << label
        total = count + used.bit_count() + extra
        if total > high:
            return False
        if total >= low:
            return True
        more = low - total
        for label in bits_of(free & ~used):
            if not plan.solver.satisfiable(must[label]):
                continue
            if label < plan.first_name:
                size = plan.classes[label - 1].size
                if size is None:
                    return True
                more -= max(0, size - len(chosen.get(label, ())))
            else:
                more -= 1
            if more <= 0:
                return True
        return False
    plan.solver.count_branch()
    properties, rest = fails[0], fails[1:]
    tried: set[Formula] = set()
    # Needed names first: they cost nothing more.
    for label in itertools.chain(bits_of(needed), bits_of(free & ~needed)):
        violated = negate(plan.node_of(properties, label))
        if violated.op == "false":
            continue
        before = chosen.get(label, [])
        if label < plan.first_name:
            # Each class has names for one property more, mostly.
            size = plan.classes[label - 1].size
            if size is not None and len(before) >= size:
                continue
            node = all_of([must[label], violated])
            if node in tried or not plan.solver.satisfiable(node):
                continue
            tried.add(node)
            after = {**chosen, label: [*before, violated]}
        else:
            node = all_of([must[label], *before, violated])
            if not plan.solver.satisfiable(node):
                continue
            after = {**chosen, label: [*before, violated]}
        if _can_fail(plan, rest, after, free, must, needed, count, low, high):
            return True
    return False


class _Must(dict[int, Formula]):
    """By label, what a property's value must satisfy for some atoms to hold."""

    def __init__(self, plan: SearchedObject, holds: list[Properties]) -> None:
        super().__init__()
        self._plan = plan
        self._holds = holds

    def __missing__(self, label: int) -> Formula:
        node = all_of([self._plan.node_of(a, label) for a in self._holds])
        self[label] = node
        return node


def bits_of(bits: int) -> Iterator[int]:
    """The numbers of the bits that are set."""
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


def _size_ranges(low: int, high: int, outside: list[Size]) -> list[tuple[int, int]]:
    """The ranges of sizes from ``low`` to ``high`` that are in none of ``outside``."""
    ranges = [(low, high)]
    for size in outside:
        split = []
        for a, b in ranges:
            split.append((a, min(b, size.low - 1)))
            if size.high is not None:
                split.append((max(a, size.high + 1), b))
        ranges = [(a, b) for a, b in split if a <= b]
    return [(a, b) for a, b in ranges if a <= b]

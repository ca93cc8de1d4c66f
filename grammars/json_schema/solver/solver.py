"""Satisfiability: whether a value exists.

Because of it masks have no dead ends, and impossible schemas are refused.
A formula over atoms is searched case by case (``tableau.py``), up to the first that can be met.
Plans decide the cases of objects and arrays (``objects.py``, ``arrays.py``).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from ramet.grammars.errors import ConstraintError, GrammarTooComplexError
from ramet.grammars.json_schema.schema.atoms import Const, Properties
from ramet.grammars.json_schema.schema.documents import Leaf
from ramet.grammars.json_schema.schema.formula import Formula, all_of, any_of, atom, negate
from ramet.grammars.json_schema.schema.number_sets import (
    allows,
    is_order_or_integer,
    joint_truths,
    listed_numbers,
)
from ramet.grammars.json_schema.schema.values import canonical
from ramet.grammars.limits import CompileLimits

from .formulas.keyword_formulas import Typer
from .tableau import Case, expand
from .value_sets.languages import Languages

_MAX_VERDICTS = 1024
_MAX_LISTED = 64
_FEW_NODES = 4
"""With so few nodes, verdicts are searched for one by one."""
_SILENT = frozenset({"title", "description", "default", "examples", "deprecated", "$comment"})
"""Keywords that don't constrain a value."""


@dataclass(slots=True)
class _Verdicts:
    """A search that advances on demand."""

    more: Iterator[tuple[bool, ...]]
    found: list[tuple[bool, ...]] = field(default_factory=list)
    has_ended: bool = False


class Outline(Protocol):
    """The interface of a plan of an object or an array."""

    def can_begin(self) -> bool:
        """Whether some object or array meets the plan."""


class ObjectOutline(Outline, Protocol):
    """The interface of an object's plan."""

    first_name: int
    num_labels: int
    names: list[str]

    def node_of(self, properties: Properties, label: int) -> Formula:
        """An atom's condition on the value of a property with this label."""

    def requires_other(self, other: Any, solver: Solver) -> bool:
        """Whether it requires a property that the other object can't have."""


class Solver(ABC):
    """Decides satisfiability, and caches the answers of one compilation.

    Attributes:
        value_sets: the values of nodes that have few (see ``values_of.py``).
        endless: by node, whether it certainly has infinitely many values (see ``differing.py``).
    """

    def __init__(self, typer: Typer, languages: Languages, limits: CompileLimits) -> None:
        self.typer = typer
        self.languages = languages
        self.limits = limits
        self.num_branches = 0
        self._end = time.monotonic() + limits.max_seconds
        self._known: dict[tuple[Formula, str], bool] = {}
        self._satisfiable: dict[Formula, bool] = {}
        self._verdicts: dict[tuple[Formula, ...], _Verdicts] = {}
        self._disjoint: dict[tuple[Formula, Formula], bool] = {}
        self._open: dict[tuple[Formula, str], int] = {}
        self._lowest_asked = 0
        self.endless: dict[Formula, bool] = {}
        self.value_sets: dict[Formula, frozenset[Hashable] | None] = {}

    @abstractmethod
    def object_plan(self, formulas: tuple[Formula, ...]) -> ObjectOutline:
        """The plan of some typed formulas over objects."""

    @abstractmethod
    def array_plan(self, formulas: tuple[Formula, ...]) -> Outline:
        """The plan of some typed formulas over arrays."""

    def satisfiable(self, node: Formula) -> bool:
        """Whether some value satisfies a node."""
        op = node.op
        if op in ("true", "false"):
            return op == "true"
        known = self._satisfiable.get(node)
        if known is None:
            known = any(self.has_kind(node, k) for k in self.typer.kinds(node))
            if known or not self._open:
                self._satisfiable[node] = known
        return known

    def has_kind(self, node: Formula, kind: str) -> bool:
        """Whether some value of a type satisfies a node.

        A value is finite, so a node that needs a value of its own inside it has none: during the
        search its answer is taken to be no, and answers that depend on that are not cached.
        """
        formula = self.typer.typed(node, kind)
        if formula.op in ("true", "false"):
            return formula.op == "true"
        if kind == "string":
            return not self.languages.texts(formula).is_empty
        if kind == "number":
            return self.languages.has_numbers(formula)
        key = (formula, kind)
        known = self._known.get(key)
        if known is not None:
            return known
        depth = self._open.get(key)
        if depth is not None:
            self._lowest_asked = min(self._lowest_asked, depth)
            return False
        depth = len(self._open)
        if depth > 4 * self.limits.max_depth:
            raise GrammarTooComplexError("", "$ref", "values nest too deep to be decided")
        outer, self._lowest_asked = self._lowest_asked, depth + 1
        self._open[key] = depth
        try:
            plan_of = self.object_plan if kind == "object" else self.array_plan
            plan: Outline = plan_of((formula,))
            found = plan.can_begin()
        finally:
            del self._open[key]
            leans_on = self._lowest_asked
            self._lowest_asked = min(outer, leans_on)
        if found or leans_on >= depth:
            self._known[key] = found
        return found

    def verdicts(
        self, nodes: tuple[Formula, ...], limit: int = _MAX_VERDICTS
    ) -> Iterator[tuple[bool, ...]]:
        """The verdicts that a value can have on all nodes but the first, which must hold; more than
        ``limit`` are refused.

        Those with more true verdicts come first; computed lazily.
        """
        search = self._verdicts.get(nodes)
        if search is None or (self.is_leaning and not search.has_ended):
            search = _Verdicts(self._find_verdicts(nodes))
            # While a search is under way, what is said not to be may be after all.
            if not self.is_leaning:
                self._verdicts[nodes] = search
        at = 0
        while True:
            while at < len(search.found):
                yield search.found[at]
                at += 1
            if search.has_ended:
                return
            if at > limit:
                raise GrammarTooComplexError(
                    "", "anyOf", f"one value can meet over {limit} mixes of alternatives"
                )
            try:
                verdict = next(search.more, None)
            except ConstraintError:
                # A search that was cut short must not pass for one that has ended.
                self._verdicts.pop(nodes, None)
                raise
            if verdict is None:
                search.has_ended = True
            else:
                search.found.append(verdict)

    def _find_verdicts(self, nodes: tuple[Formula, ...]) -> Iterator[tuple[bool, ...]]:
        """Verdicts by choosing node after node; those with few values are chosen together, and so
        are all on numbers where only order and integers matter."""
        numbers = self._number_verdicts(nodes)
        fits = self.satisfiable if numbers is None else self._fits_no_number
        listed = {i: values for i, n in enumerate(nodes[1:]) if (values := self._listed(n))}
        others = [i for i in range(len(nodes) - 1) if i not in listed]
        found: set[tuple[bool, ...]] = set()
        for true, holds, fails in self._listed_verdicts(nodes, listed, fits):
            rest = tuple(nodes[i + 1] for i in others)
            for verdict in self._chosen(rest, holds, fails, (), fits):
                chosen = dict(zip(others, verdict, strict=True))
                whole = tuple(chosen.get(i, i in true) for i in range(len(nodes) - 1))
                if numbers is not None:
                    found.add(whole)
                yield whole
        yield from (v for v in numbers or () if v not in found)

    def _number_verdicts(self, nodes: tuple[Formula, ...]) -> list[tuple[bool, ...]] | None:
        """The verdicts that numbers can have on many nodes; None: they are few, or are conditions
        of another kind."""
        if len(nodes) <= _FEW_NODES or "number" not in self.typer.kinds(nodes[0]):
            return None
        typed = [self.typer.typed(node, "number") for node in nodes]
        if not all(map(is_order_or_integer, typed)):
            return None
        truths = {verdict[1:] for verdict in joint_truths(typed) if verdict[0]}
        return sorted(truths, reverse=True)

    def _fits_no_number(self, node: Formula) -> bool:
        """Whether a value of another type than numbers satisfies a node."""
        return any(self.has_kind(node, k) for k in self.typer.kinds(node) if k != "number")

    def _listed(self, node: Formula) -> list[Hashable]:
        """The values that a node lists, if it says little else; none otherwise."""
        value = node.parts[0] if node.op == "atom" else None
        if isinstance(value, Const):
            return [value.value]
        if not isinstance(value, Leaf) or not isinstance(value.schema, dict):
            return []
        schema = value.schema
        keywords = set(schema) - _SILENT
        if keywords in ({"const"}, {"const", "type"}):
            found = [canonical(schema["const"])]
        elif keywords in ({"enum"}, {"enum", "type"}) and len(schema["enum"]) <= _MAX_LISTED:
            found = list(dict.fromkeys(map(canonical, schema["enum"])))
        else:
            return []
        if "type" not in keywords:
            return found
        return [v for v in found if self.satisfiable(all_of([node, atom(Const(v))]))]

    def _listed_verdicts(
        self,
        nodes: tuple[Formula, ...],
        listed: dict[int, list[Hashable]],
        fits: Callable[[Formula], bool],
    ) -> Iterator[tuple[frozenset[int], list[Formula], list[Formula]]]:
        """Which of the nodes that list their values hold together: the nodes that then hold, and
        those that fail."""
        owners: dict[Hashable, list[int]] = {}
        for i, values in listed.items():
            for value in values:
                owners.setdefault(value, []).append(i)
        groups: dict[tuple[int, ...], list[Hashable]] = {}
        for value, indices in owners.items():
            groups.setdefault(tuple(indices), []).append(value)
        for group, values in groups.items():
            self.count_branch()
            node = any_of(atom(Const(v)) for v in values)
            if fits(all_of([nodes[0], node])):
                yield frozenset(group), [nodes[0], node], []
        fails = [nodes[i + 1] for i in listed]
        if not fails or fits(all_of([nodes[0], *map(negate, fails)])):
            yield frozenset(), [nodes[0]], fails

    def _chosen(
        self,
        nodes: tuple[Formula, ...],
        holds: list[Formula],
        fails: list[Formula],
        verdict: tuple[bool, ...],
        fits: Callable[[Formula], bool],
    ) -> Iterator[tuple[bool, ...]]:
        """Verdicts on ``nodes``, after ``verdict`` on those before them, of values that ``fits``
        finds."""
        if not nodes:
            yield verdict
            return
        self.count_branch()
        node, rest = nodes[0], nodes[1:]
        if not any(self.are_disjoint(h, node) for h in holds):
            # What contradicts the node needn't be negated.
            left = [f for f in fails if not self.are_disjoint(f, node)]
            if fits(all_of([*holds, node, *map(negate, left)])):
                yield from self._chosen(rest, [*holds, node], left, (*verdict, True), fits)
            fails = [*fails, node]
            if not fits(all_of([*holds, *map(negate, fails)])):
                return
        yield from self._chosen(rest, holds, fails, (*verdict, False), fits)

    def joined(self, nodes: tuple[Formula, ...], verdict: tuple[bool, ...]) -> Formula:
        """The node of the values for which the first node holds and the rest come out so."""
        holds = [nodes[0], *(n for n, v in zip(nodes[1:], verdict, strict=True) if v)]
        fails = [
            negate(n)
            for n, v in zip(nodes[1:], verdict, strict=True)
            if not v and not any(self.are_disjoint(h, n) for h in holds)
        ]
        return all_of([*holds, *fails])

    def are_disjoint(self, a: Formula, b: Formula) -> bool:
        """Whether certainly no value satisfies both nodes; False is not a proof of the contrary."""
        if a.op == b.op == "atom" and isinstance(a.parts[0], Const):
            value = b.parts[0]
            if isinstance(value, Const):
                return a.parts[0] != value
        key = (a, b)
        known = self._disjoint.get(key)
        if known is None:
            self._disjoint[key] = self._disjoint[b, a] = False  # While it is being decided.
            known = all(
                self._are_disjoint(a, b, kind)
                for kind in set(self.typer.kinds(a)) & set(self.typer.kinds(b))
            )
            self._disjoint[key] = self._disjoint[b, a] = known
        return known

    def _are_disjoint(self, a: Formula, b: Formula, kind: str) -> bool:
        x, y = self.typer.typed(a, kind), self.typer.typed(b, kind)
        if x.op == "false" or y.op == "false":
            return True
        if kind == "number":
            numbers, other = listed_numbers(x), y
            if numbers is None:
                numbers, other = listed_numbers(y), x
            if numbers is not None:
                return not any(allows(other, n) for n in numbers)
            joint = all_of([x, y])
            return is_order_or_integer(joint) and not self.languages.has_numbers(joint)
        if kind == "string":
            mine, theirs = self.languages.texts(x), self.languages.texts(y)
            if mine.others and theirs.others:
                return False
            if mine.others:
                mine, y = theirs, x
            return not any(self.languages.has_text(y, t) for t in mine.texts)
        if kind == "object":
            plans = self.object_plan((x,)), self.object_plan((y,))
            return any(p.requires_other(q, self) for p, q in (plans, plans[::-1]))
        return False

    def begin(self) -> None:
        """Start a new decision: the limit on cases is for each."""
        if not self._open:
            self.num_branches = 0
            self._end = time.monotonic() + self.limits.max_seconds

    @property
    def is_leaning(self) -> bool:
        """Whether a search is under way, so that a "no" may be taken back."""
        return bool(self._open)

    def cases(
        self, goals: list[tuple[Formula, bool]], can_meet: Callable[[Case], bool]
    ) -> Iterator[Case]:
        """Cases that make every formula have its truth, and that ``can_meet`` allows.

        What it refuses it must refuse in every larger case.
        """
        return expand(list(reversed(goals)), {}, can_meet, self.count_branch)

    def count_branch(self) -> None:
        """Count one case against the limits."""
        self.num_branches += 1
        if time.monotonic() > self._end:
            raise GrammarTooComplexError(
                "", "oneOf", f"deciding it takes over {self.limits.max_seconds:g} s"
            )
        if self.num_branches > self.limits.max_branches:
            raise GrammarTooComplexError(
                "", "oneOf", f"deciding it takes more than {self.limits.max_branches} cases"
            )


def signed(node: Formula, truth: bool) -> Formula:
    """The node, or its negation."""
    return node if truth else negate(node)

"""Objects: which properties may come next, and whether the object may end.

An ``ObjectPlan`` is the static part of the typed formulas that are followed together: every name
and class of names that they distinguish, and each formula's condition on such a property's value. A
frame (``frames.py``) is the dynamic part.

The first formula must hold. The values of the others are *verdicts* for the surrounding frame: they
record, property by property, which alternatives are still possible.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Hashable, Sequence

from ramet.grammars.json_schema.schema.atoms import Has, Properties, Size
from ramet.grammars.json_schema.schema.formula import (
    FALSE,
    TRUE,
    Formula,
    all_of,
    assign,
    atoms,
    conjuncts,
    truth_of,
)

from .children import Child, make_child
from .components import (
    Component,
    asks_no_wrong_value,
    conditions_on_names,
    independent_parts,
)
from .name_patterns import is_text, name_classes
from .object_search import bits_of, can_meet
from .solver import Solver
from .tableau import likely_case
from .value_sets.text_sets import members_of

CLOSE = 0
"""The label of the closing brace."""

_MAX_LISTED = 256


class ObjectPlan:
    """The static part of some formulas over an object.

    Attributes:
        number: identifies the plan within its solver.
        formulas: see the module's docstring.
        names: the names that are distinguished; the i-th has label ``first_name + i``.
        classes: the sets of all other names, with labels 1, 2, and so on.
        never_runs_out: every prefix of a name has infinitely many completions.
        is_simple: there is one formula, a conjunction of atoms.
    """

    def __init__(self, solver: Solver, formulas: tuple[Formula, ...], number: int) -> None:
        self.solver = solver
        self.formulas = formulas
        self.number = number
        found = dict.fromkeys(a for f in formulas for a in atoms(f))
        self._properties = [a for a in found if isinstance(a, Properties)]
        has = [a for a in found if isinstance(a, Has)]
        patterns = list(dict.fromkeys(p for a in self._properties for p, _ in a.patterns))
        self._pattern_index = {pattern: i for i, pattern in enumerate(patterns)}
        names = dict.fromkeys(n for a in self._properties for n, _ in a.names)
        names.update(dict.fromkeys(a.name for a in has))
        self.is_simple = len(formulas) == 1 and all(p.op == "atom" for p in conjuncts(formulas[0]))
        classes, self._name_patterns = name_classes(
            solver, self._properties, patterns, frozenset(names), may_be_wide=self.is_simple
        )
        listed = [c for c in classes if c[1].size is not None and c[1].size <= _MAX_LISTED]
        for _, texts in listed:
            names.update(dict.fromkeys(sorted(members_of(texts))))
        self.names = [n for n in names if is_text(n)]
        self._vectors = [v for v, t in classes if (v, t) not in listed]
        self.classes = [t for v, t in classes if (v, t) not in listed]
        self.first_name = 1 + len(self.classes)
        self.label_of = {n: self.first_name + i for i, n in enumerate(self.names)}
        self.num_labels = self.first_name + len(self.names)
        self._node_tables = {a: dict(a.names) for a in self._properties}
        self._nodes: dict[Properties, dict[int, Formula]] = {a: {} for a in self._properties}
        self._in_pattern: dict[str, tuple[bool, ...]] = {}
        if patterns:
            has_text = solver.languages.has_text
            self._in_pattern = {n: tuple(has_text(p, n) for p in patterns) for n in self.names}
        self.has_size = any(isinstance(a, Size) for a in found)
        self._is_told_by_names = (
            len(formulas) == 1 and not self.has_size and asks_no_wrong_value(formulas[0])
        )
        self.max_count = max(
            (max(a.low, a.high or 0) + 1 for a in found if isinstance(a, Size)), default=0
        )
        self._has = sum(1 << self.label_of[a.name] for a in has if a.name in self.label_of)
        self._never: dict[Hashable, Formula] = {
            a: FALSE for a in has if a.name not in self.label_of
        }
        self._about = {} if self.is_simple else conditions_on_names(self._properties, self.label_of)
        self._conditional = functools.reduce(operator.or_, self._about.values(), 0)
        self._settled: dict[Hashable, tuple[Formula, ...]] = {}
        self._endings: dict[Hashable, bool] = {}
        self._components: dict[Formula, list[Component]] = {}
        self.has_finite_classes = any(t.size is not None for t in self.classes)
        self.never_runs_out = all(t.never_runs_out for t in self.classes)
        self._children: dict[tuple[tuple[Formula, ...], int], Child] = {}
        self._only_children: dict[int, Child] = {}
        self._named_children: dict[tuple[bool, ...], Child] = {}
        self._splits: dict[tuple[Formula, ...], tuple[list[Properties], list[Properties]]] = {}
        if self.is_simple:
            self._prepare_simple()

    @property
    def is_wide(self) -> bool:
        """Whether all names that aren't distinguished are one class, in which a name's own patterns
        decide what its value must be."""
        return self._name_patterns is not None

    # -- labels' nodes ----------------------------------------------------------------------

    def node_of(self, properties: Properties, label: int) -> Formula:
        """An atom's condition on the value of a property with this label."""
        table = self._nodes[properties]
        node = table.get(label)
        if node is None:
            node = table[label] = self._node_of(properties, label)
        return node

    def _node_of(self, properties: Properties, label: int) -> Formula:
        if label >= self.first_name:
            name = self.names[label - self.first_name]
            vector: Sequence[bool] = self._in_pattern.get(name, ())
            own = self._node_tables[properties].get(name)
        else:
            vector = self._vectors[label - 1]
            own = None
        return self._rest_of(properties, vector, [] if own is None else [own])

    def _rest_of(
        self, properties: Properties, matched: Sequence[bool], parts: list[Formula]
    ) -> Formula:
        """What an atom demands by the patterns that are matched, or else of all other names."""
        is_listed = bool(parts)
        for pattern, node in properties.patterns:
            if matched[self._pattern_index[pattern]]:
                parts.append(node)
                is_listed = True
        return all_of(parts) if is_listed else properties.rest

    def named_child(self, residual: tuple[Formula, ...], label: int, name: str) -> Child:
        """What is followed in the value of a property with this label and name."""
        if self._name_patterns is None or label >= self.first_name:
            return self.child(residual, label)
        matched = self._name_patterns.matched(name)
        known = self._named_children.get(matched)
        if known is None:
            parts = [self._rest_of(a, matched, []) for a in self._properties]
            known = self._named_children[matched] = Child((all_of(parts),), (), ())
        return known

    def split(self, residual: tuple[Formula, ...]) -> tuple[list[Properties], list[Properties]]:
        """The ``Properties`` atoms that must hold, and those that may fail."""
        known = self._splits.get(residual)
        if known is None:
            must = [
                p.parts[0]
                for p in conjuncts(residual[0])
                if p.op == "atom" and isinstance(p.parts[0], Properties)
            ]
            may = dict.fromkeys(
                a for f in residual for a in atoms(f) if isinstance(a, Properties) and a not in must
            )
            known = self._splits[residual] = (must, list(may))
        return known

    def child(self, residual: tuple[Formula, ...], label: int) -> Child:
        """What is followed in the value of a property with this label."""
        if self.is_simple:
            only = self._only_children.get(label)
            if only is None:
                parts = [self.node_of(a, label) for a in self._properties]
                only = self._only_children[label] = Child((all_of(parts),), (), ())
            return only
        key = (residual, label)
        known = self._children.get(key)
        if known is None:
            must, may = self.split(residual)
            known = self._children[key] = make_child(
                [self.node_of(a, label) for a in must], [(a, self.node_of(a, label)) for a in may]
            )
        return known

    def after_child(
        self, residual: tuple[Formula, ...], child: Child, verdict: tuple[bool, ...]
    ) -> tuple[Formula, ...]:
        """The remaining formulas after a property's value with these verdicts."""
        failed = {a for a, holds in child.verdicts(verdict) if not holds}
        if not failed:
            return residual
        truths: dict[Hashable, Formula] = dict.fromkeys(failed, FALSE)
        return tuple(assign(f, truths) for f in residual)

    def floor_after(self, label: int, floor: int) -> int:
        """In a fixed order, the least label of a name that can come after ``label``.

        Names that aren't distinguished come last.
        """
        return max(floor, label + 1) if label >= self.first_name else self.num_labels

    def settled(self, residual: tuple[Formula, ...], seen: int) -> tuple[Formula, ...]:
        """The formulas with what is decided by the names that are there.

        A condition on some properties can't fail any more when all of them are there.
        """
        seen &= self._has | self._conditional
        if not seen and not self._never:
            return residual
        key = (residual, seen)
        known = self._settled.get(key)
        if known is None:
            truths = self._never | {
                Has(self.names[label - self.first_name]): TRUE for label in bits_of(seen)
            }
            truths |= {a: TRUE for a, labels in self._about.items() if not labels & ~seen}
            known = self._settled[key] = tuple(assign(f, truths) for f in residual)
        return known

    # -- deciding ---------------------------------------------------------------------------

    def _prepare_simple(self) -> None:
        parts = [p.parts[0] for p in conjuncts(self.formulas[0])]
        self.required = 0
        self.low, self.high = 0, -1
        for value in parts:
            if isinstance(value, Has):
                if value.name in self.label_of:
                    self.required |= 1 << self.label_of[value.name]
                else:
                    self.high = -2
            elif isinstance(value, Size):
                self.low = max(self.low, value.low)
                if value.high is not None and self.high != -2:
                    self.high = value.high if self.high == -1 else min(self.high, value.high)
        self._possible: int | None = None

    @property
    def possible(self) -> int:
        """For a simple plan, the labels whose properties can have a value, as bits."""
        if self._possible is None:
            solver = self.solver
            bits = 0
            for label in range(1, self.num_labels):
                child = self.child(self.formulas, label)
                if solver.satisfiable(child.nodes[0]):
                    bits |= 1 << label
            if solver.is_leaning:
                return bits
            self._possible = bits
        return self._possible

    def live_labels(self, seen: int, count: int, spent: int) -> int:
        """For a simple plan, the labels (``CLOSE`` too) that may come next, as bits.

        ``spent`` has the classes' labels whose names are used up.
        """
        missing = self.required & ~seen
        num_missing = missing.bit_count()
        free = self.possible & ~seen & ~spent
        if missing & ~free or -1 < self.high < self.low:
            return 0
        live = free
        if self.high != -1 and count + num_missing >= self.high:
            if count + num_missing > self.high:
                return 0
            live = missing
        if not missing and count >= self.low:
            live |= 1 << CLOSE
        elif count + num_missing < self.low and not self._can_fill(free, self.low - count):
            return 0
        return live

    def _can_fill(self, free: int, needed: int) -> bool:
        available = (free >> self.first_name).bit_count()
        for i, texts in enumerate(self.classes):
            if free >> (1 + i) & 1:
                if texts.size is None:
                    return True
                available += texts.size
        return available >= needed

    def requires_other(self, other: ObjectPlan, solver: Solver) -> bool:
        """For simple plans, whether this one requires a property that the other one can't have."""
        if not (self.is_simple and other.is_simple) or other.is_wide:
            return False
        for label in bits_of(self.required):
            label_there = other.label_of.get(self.names[label - self.first_name])
            mine = self.child(self.formulas, label).nodes[0]
            there = range(1, other.first_name) if label_there is None else (label_there,)
            theirs = [other.child(other.formulas, n).nodes[0] for n in there]
            if all("false" in (mine.op, t.op) or solver.are_disjoint(mine, t) for t in theirs):
                return True
        return False

    def can_begin(self) -> bool:
        """Whether some object makes the first formula true."""
        if self.is_simple:
            num_required = self.required.bit_count()
            if self.high == -2 or (self.high != -1 and num_required > self.high):
                return False
            fits = self.solver.satisfiable
            if not all(fits(self.child(self.formulas, n).nodes[0]) for n in bits_of(self.required)):
                return False
            return num_required >= self.low or self.live_labels(0, 0, 0) != 0
        return self.can_end_with(self.formulas, 0, 0, 0, ((True,) * 0,), ordered_from=0)

    def can_end_with(
        self,
        residual: tuple[Formula, ...],
        seen: int,
        count: int,
        spent: int,
        goals: Sequence[tuple[bool, ...]],
        *,
        ordered_from: int,
    ) -> bool:
        """Whether further properties can make the first formula true, the others one of ``goals``.

        ``ordered_from``: labels below it can't come any more (properties in a fixed order).
        """
        if len(residual) == 1:
            parts = self._components.get(residual[0])
            if parts is None:
                parts = self._components[residual[0]] = independent_parts(
                    residual[0], self.label_of
                )
            if len(parts) > 1:
                return all(
                    self.can_end_with(
                        (part,), seen & labels, count, spent, goals, ordered_from=ordered_from
                    )
                    for part, labels in parts
                )
        if self._is_told_by_names:
            # Neither a count nor an invalid value is required: other properties don't matter.
            seen &= self._has
            count = 0
        key = (residual, seen, count, spent, tuple(goals), ordered_from)
        known = self._endings.get(key)
        if known is None:
            known = self._can_end_with(residual, seen, count, spent, goals, ordered_from)
            if known or not self.solver.is_leaning:
                self._endings[key] = known
        return known

    def _can_end_with(
        self,
        residual: tuple[Formula, ...],
        seen: int,
        count: int,
        spent: int,
        goals: Sequence[tuple[bool, ...]],
        ordered_from: int,
    ) -> bool:
        free = ((1 << self.num_labels) - 2) & ~seen & ~spent
        if ordered_from > self.first_name:
            free &= (1 << self.first_name) - 1 | ~((1 << ordered_from) - 1)
        # An object that may end as it is needs no search; of many alternatives few may, though.
        if residual[0].op == "all" and self.holds_now(residual[0], seen, count):
            now = tuple(self.holds_now(f, seen, count) for f in residual[1:])
            if any(now == goal[: len(now)] for goal in goals):
                return True
        residual = self.settled(residual, seen)
        for goal in goals:
            wanted = [(residual[0], True), *zip(residual[1:], goal, strict=False)]
            if any((f.op == "false") == t for f, t in wanted if f.op in ("true", "false")):
                continue
            likely = likely_case(wanted)
            if likely is not None and can_meet(self, likely, free, count):
                return True
            cases = self.solver.cases(wanted, lambda case: can_meet(self, case, free, count))
            if next(cases, None) is not None:
                return True
        return False

    def holds_now(self, formula: Formula, seen: int, count: int) -> bool:
        """A formula's value if the object ends here."""

        def now(value: Hashable) -> bool:
            if isinstance(value, Has):
                label = self.label_of.get(value.name)
                return label is not None and bool(seen >> label & 1)
            if isinstance(value, Size):
                return value.low <= count and (value.high is None or count <= value.high)
            return True

        return truth_of(formula, now)

"""Arrays: what the next item may be, and whether the array may end.

As with objects, an ``ArrayPlan`` is the static part of some typed formulas that are followed
together.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterator, Sequence

from ramet.grammars.json_schema.schema.atoms import Const, Contains, Items, Length, Unique
from ramet.grammars.json_schema.schema.formula import (
    FALSE,
    TRUE,
    Formula,
    all_of,
    any_of,
    atom,
    atoms,
    conjuncts,
    negate,
    replace,
    truth_of,
)

from .array_search import Search, is_new, item_node
from .children import Child, make_child
from .frames import UNKNOWN
from .solver import Solver
from .tableau import Case
from .values_of import values_of

State = tuple[tuple[Formula, ...], int, tuple[int, ...], tuple[Hashable, ...]]
"""The formulas that are left; how many items there are, up to ``max_index``; how many satisfy each
``Contains``; the items' values, where equal ones matter (while deciding, also the node of a value
that isn't known)."""

Verdict = tuple[bool, ...]


class ArrayPlan:
    """The static part of some formulas over an array.

    Attributes:
        number: identifies the plan within its solver.
        formulas: the first must come out true; the others' verdicts are wanted.
        has_unique: whether items' values must be recorded.
        is_simple: there is one formula, a conjunction of ``Items`` and ``Length``.
        is_plainly_unique: likewise, with ``Unique``.
    """

    def __init__(self, solver: Solver, formulas: tuple[Formula, ...], number: int) -> None:
        self.solver = solver
        self.formulas = formulas
        self.number = number
        found = dict.fromkeys(a for f in formulas for a in atoms(f))
        self.contains = [a for a in found if isinstance(a, Contains)]
        self.has_unique = any(isinstance(a, Unique) for a in found)
        ends = [len(a.prefix) for a in found if isinstance(a, Items)]
        ends += [max(a.low, a.high or 0) + 1 for a in found if isinstance(a, Length)]
        self.max_index = max(ends, default=0)
        self.prefix_len = max((len(a.prefix) for a in found if isinstance(a, Items)), default=0)
        parts = conjuncts(formulas[0])
        self.is_simple = len(formulas) == 1 and all(
            p.op == "atom" and isinstance(p.parts[0], Items | Length) for p in parts
        )
        self.is_plainly_unique = len(formulas) == 1 and all(
            p.op == "atom" and isinstance(p.parts[0], Items | Length | Unique) for p in parts
        )
        self._children: dict[Hashable, Child] = {}
        self._fitting: dict[int, bool] = {}
        if self.is_simple:
            lengths = [p.parts[0] for p in parts if isinstance(p.parts[0], Length)]
            self.low = max((a.low for a in lengths), default=0)
            highs = [a.high for a in lengths if a.high is not None]
            self.high = min(highs) if highs else None

    @property
    def start(self) -> State:
        """The state before the first item."""
        return self._settle(self.formulas, 0, (0,) * len(self.contains), ())

    def _settle(
        self,
        residual: tuple[Formula, ...],
        index: int,
        counts: tuple[int, ...],
        values: tuple[Hashable, ...],
    ) -> State:
        decided: dict[Hashable, Formula] = {}
        for contains, count in zip(self.contains, counts, strict=True):
            if contains.high is None:
                if count >= contains.low:
                    decided[contains] = TRUE
            elif count > contains.high:
                decided[contains] = FALSE
        if decided:
            residual = tuple(replace(f, decided.get) for f in residual)
        return residual, min(index, self.max_index), counts, values

    def child(self, state: State) -> Child:
        """What is followed in the next item."""
        residual, index, _, values = state
        key = (residual, min(index, self.prefix_len), values if self.has_unique else ())
        known = self._children.get(key)
        if known is None:
            must: list[Formula] = []
            musts: set[Hashable] = set()
            new = is_new(values) if self.has_unique else TRUE
            for part in conjuncts(residual[0]):
                value = part.parts[0] if part.op == "atom" else None
                if isinstance(value, Items | Unique):
                    musts.add(value)
                    must.append(new if isinstance(value, Unique) else item_node(value, index))
            wanted: dict[Hashable, Formula] = {}
            for value in (a for f in residual for a in atoms(f)):
                if value in musts:
                    continue
                if isinstance(value, Items):
                    wanted[value] = item_node(value, index)
                elif isinstance(value, Unique):
                    wanted[value] = new
                elif isinstance(value, Contains):
                    wanted[value] = value.node
            known = make_child(must, list(wanted.items()))
            # With unique items each state has its own, so remembering them would only grow.
            if not self.has_unique:
                self._children[key] = known
        return known

    def after_child(
        self, state: State, child: Child, verdict: tuple[bool, ...], value: Hashable
    ) -> State:
        """The state after an item with these verdicts."""
        residual, index, counts, values = state
        outcome = dict(child.verdicts(verdict))
        failed = {a for a, holds in outcome.items() if not holds and not isinstance(a, Contains)}
        if failed:
            residual = tuple(replace(f, lambda a: FALSE if a in failed else None) for f in residual)
        if self.contains:
            counts = tuple(
                min(n + 1, c.low if c.high is None else c.high + 1) if outcome.get(c) else n
                for c, n in zip(self.contains, counts, strict=True)
            )
        if self.has_unique and any(isinstance(a, Unique) for f in residual for a in atoms(f)):
            values = (*values, value)
        return self._settle(residual, index + 1, counts, values)

    # -- deciding ---------------------------------------------------------------------------

    def can_begin(self) -> bool:
        """Whether some array makes the first formula true."""
        return self.can_end_with(self.start, ((),))

    def can_end_with(self, state: State, goals: Sequence[tuple[bool, ...]]) -> bool:
        """Whether further items can make the first formula true, the others one of ``goals``."""
        residual, index, _, _ = state
        if self.is_simple:
            if residual[0].op == "false":
                return False
            if self.high is not None and max(index, self.low) > self.high:
                return False
            return all(self._fits_at(i) for i in self._needed(index, self.low))
        return self._end_values(state, goals) is not None

    def _end_values(
        self, state: State, goals: Sequence[tuple[bool, ...]]
    ) -> frozenset[Hashable] | None:
        """None if no further items do; else the values of which they may not spare each."""
        needed: frozenset[Hashable] = frozenset()

        def can_meet(case: Case) -> bool:
            nonlocal needed
            for search in self._searches(case, state):
                if search.run():
                    needed = search.needed
                    return True
            return False

        for _ in self._cases(state, goals, can_meet):
            return needed
        return None

    def _cases(
        self,
        state: State,
        goals: Sequence[tuple[bool, ...]],
        can_meet: Callable[[Case], bool],
    ) -> Iterator[Case]:
        residual = state[0]
        for goal in goals:
            wanted = [(residual[0], True), *zip(residual[1:], goal, strict=False)]
            if any((f.op == "false") == t for f, t in wanted if f.op in ("true", "false")):
                continue
            yield from self.solver.cases(wanted, can_meet)

    def exact_child(self, state: State, goals: Sequence[tuple[bool, ...]]) -> Child:
        """What is followed in the next item, without the values after which nothing reaches a goal.

        Which values those are depends on what later items can be: all different ones may be too
        few, and equal ones may have to be among them.
        """
        child = self.child(state)
        solver = self.solver
        solver.begin()
        restrictions: list[Formula] = []
        for verdict in solver.verdicts(child.nodes):
            node = solver.joined(child.nodes, verdict)

            def ends(value: Hashable, verdict: tuple[bool, ...] = verdict) -> bool:
                return self.can_end_with(self.after_child(state, child, verdict, value), goals)

            needed = self._end_values(self.after_child(state, child, verdict, UNKNOWN), goals)
            if needed is not None:
                restrictions += [
                    negate(atom(Const(v))) for v in sorted(needed, key=repr)
                    if solver.satisfiable(all_of([node, atom(Const(v))])) and not ends(v)
                ]  # fmt: skip
                continue
            found = values_of(solver, node)
            if found is not None:
                good = [atom(Const(v)) for v in sorted(found, key=repr) if ends(v)]
            else:
                good = self._partners(self.after_child(state, child, verdict, node), goals)
            if good:
                restrictions.append(any_of([negate(node), *good]))
        if not restrictions:
            return child
        must = all_of([child.nodes[0], *restrictions])
        return Child((must, *child.nodes[1:]), child.atoms, child.verdict_of)

    def can_reach(
        self, state: State, child: Child, verdict: tuple[bool, ...], goals: Sequence[Verdict]
    ) -> bool:
        """Whether a goal can be reached after some value of an item with a verdict."""
        if self.can_end_with(self.after_child(state, child, verdict, UNKNOWN), goals):
            return True
        if not self.has_unique:
            return False
        node = self.solver.joined(child.nodes, verdict)
        return self.can_end_with(self.after_child(state, child, verdict, node), goals)

    def _partners(self, state: State, goals: Sequence[tuple[bool, ...]]) -> list[Formula]:
        """What a later item may be that equals one that is there, so that a goal is reached."""

        def can_meet(case: Case) -> bool:
            return any(search.run() for search in self._searches(case, state))

        return [
            node
            for case in self._cases(state, goals, can_meet)
            for search in self._searches(case, state)
            for node in search.partners()
        ]

    def never_depends(self, state: State) -> bool:
        """Whether the items that are there change nothing, as long as others never run out."""
        return self.is_plainly_unique and state[1] >= self.prefix_len

    def can_go_on(self, state: State) -> bool:
        """For a simple plan, whether there may be another item."""
        _, index, _, _ = state
        if self.high is not None and index >= self.high:
            return False
        return self._fits_at(min(index, self.prefix_len))

    def most(self) -> int | None:
        """For a simple plan, the most items that an array can have; None: no bound."""
        for index in range(self.prefix_len + 1):
            if index == self.high or not self._fits_at(index):
                return index
        return self.high

    def _needed(self, index: int, low: int) -> range:
        """The positions that must be filled; those past the prefix are one."""
        if index >= low:
            return range(0)
        return range(min(index, self.prefix_len), min(low, self.prefix_len + 1))

    def _fits_at(self, index: int) -> bool:
        known = self._fitting.get(index)
        if known is None:
            node = all_of(
                item_node(p.parts[0], index)
                for p in conjuncts(self.formulas[0])
                if isinstance(p.parts[0], Items)
            )
            known = self.solver.satisfiable(node)
            if known or not self.solver.is_leaning:
                self._fitting[index] = known
        return known

    def _searches(self, case: Case, state: State) -> Iterator[Search]:
        """The searches of which one must succeed for a case to be met."""
        _, index, counted, values = state
        counts = dict(zip(self.contains, counted, strict=True))
        lows_highs: list[list[tuple[int, int | None]]] = []
        low, high = 0, None
        outside: list[Length] = []
        holds: list[Items] = []
        fails: list[Items] = []
        unique: bool | None = None
        followed: list[Contains] = []
        for value, truth in case.items():
            if isinstance(value, Length):
                if truth:
                    low = max(low, value.low)
                    if value.high is not None:
                        high = value.high if high is None else min(high, value.high)
                else:
                    outside.append(value)
            elif isinstance(value, Items):
                (holds if truth else fails).append(value)
            elif isinstance(value, Unique):
                unique = truth
            else:
                assert isinstance(value, Contains)
                followed.append(value)
                if truth:
                    lows_highs.append([(value.low, value.high)])
                else:
                    ranges: list[tuple[int, int | None]] = []
                    if value.low > 0:
                        ranges.append((0, value.low - 1))
                    if value.high is not None:
                        ranges.append((value.high + 1, None))
                    lows_highs.append(ranges)
        for bounds in itertools.product(*lows_highs):
            for low_, high_ in _length_ranges(low, high, outside):
                yield Search(
                    self.solver, holds, fails, followed, bounds, low_, high_, unique, values,
                    self.prefix_len, index, tuple(counts[c] for c in followed),
                )  # fmt: skip

    def holds_now(self, formula: Formula, state: State) -> bool:
        """A formula's value if the array ends here."""
        _, index, counts, _ = state

        def now(value: Hashable) -> bool:
            if isinstance(value, Length):
                return value.low <= index and (value.high is None or index <= value.high)
            if isinstance(value, Contains):
                count = counts[self.contains.index(value)]
                return value.low <= count and (value.high is None or count <= value.high)
            return True

        return truth_of(formula, now)


def _length_ranges(
    low: int, high: int | None, outside: list[Length]
) -> list[tuple[int, int | None]]:
    ranges: list[tuple[int, int | None]] = [(low, high)]
    for length in outside:
        split: list[tuple[int, int | None]] = []
        for a, b in ranges:
            split.append((a, length.low - 1 if b is None else min(b, length.low - 1)))
            if length.high is not None:
                split.append((max(a, length.high + 1), b))
        ranges = split
    return [(a, b) for a, b in ranges if b is None or a <= b]

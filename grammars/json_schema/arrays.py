"""Arrays: what the next item may be, and whether the array may end.

As with objects, an ``ArrayPlan`` is what some typed formulas, followed together, say of an array.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Hashable, Sequence

from .atoms import Const, Contains, Items, Length, Unique
from .formula import (
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
from .objects import Child, make_child
from .solver import Case, Solver, signed
from .values_of import values_of

State = tuple[tuple[Formula, ...], int, tuple[int, ...], tuple[Hashable, ...]]
"""The formulas that are left; how many items there are, up to ``max_index``; how many satisfy each
``Contains``; the items' values, where equal ones matter."""


class ArrayPlan:
    """What some formulas say of an array.

    Attributes:
        number: tells plans of one solver apart.
        formulas: the first must come out true; the others' verdicts are wanted.
        has_unique: whether items' values must be remembered.
        is_simple: there is one formula, a conjunction of ``Items`` and ``Length``.
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
            new = _is_new(values) if self.has_unique else TRUE
            for part in conjuncts(residual[0]):
                value = part.parts[0] if part.op == "atom" else None
                if isinstance(value, Items | Unique):
                    musts.add(value)
                    must.append(new if isinstance(value, Unique) else _item(value, index))
            wanted: dict[Hashable, Formula] = {}
            for value in (a for f in residual for a in atoms(f)):
                if value in musts:
                    continue
                if isinstance(value, Items):
                    wanted[value] = _item(value, index)
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
        """The state after an item came out like this."""
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
        residual, index, counts, values = state
        if self.is_simple:
            if residual[0].op == "false" or (self.high is not None and index > self.high):
                return False
            return all(self._fits_at(i) for i in self._needed(index, self.low))
        counted = dict(zip(self.contains, counts, strict=True))

        def can_meet(case: Case) -> bool:
            return self._can_meet(case, index, counted, values)

        for goal in goals:
            wanted = [(residual[0], True), *zip(residual[1:], goal, strict=False)]
            if any((f.op == "false") == t for f, t in wanted if f.op in ("true", "false")):
                continue
            cases = self.solver.cases(wanted, can_meet)
            if next(cases, None) is not None:
                return True
        return False

    def can_go_on(self, state: State) -> bool:
        """For a simple plan, whether there may be another item."""
        _, index, _, _ = state
        if self.high is not None and index >= self.high:
            return False
        return self._fits_at(min(index, self.prefix_len))

    def _needed(self, index: int, low: int) -> range:
        """The positions that must be filled; those past the prefix are one."""
        if index >= low:
            return range(0)
        return range(min(index, self.prefix_len), min(low, self.prefix_len + 1))

    def _fits_at(self, index: int) -> bool:
        known = self._fitting.get(index)
        if known is None:
            node = all_of(
                _item(p.parts[0], index)
                for p in conjuncts(self.formulas[0])
                if isinstance(p.parts[0], Items)
            )
            known = self.solver.satisfiable(node)
            if known or not self.solver.is_leaning:
                self._fitting[index] = known
        return known

    def _can_meet(
        self, case: Case, index: int, counts: dict[Contains, int], values: tuple[Hashable, ...]
    ) -> bool:
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
                search = _Search(
                    self.solver, holds, fails, followed, bounds, low_, high_, unique, values,
                    self.prefix_len,
                )  # fmt: skip
                if search.run(index, tuple(counts[c] for c in followed)):
                    return True
        return False

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


class _Search:
    """Breadth first, item by item: can an array be ended so that a case is met?"""

    def __init__(
        self,
        solver: Solver,
        holds: list[Items],
        fails: list[Items],
        followed: list[Contains],
        bounds: tuple[tuple[int, int | None], ...],
        low: int,
        high: int | None,
        unique: bool | None,
        values: tuple[Hashable, ...],
        prefix_len: int,
    ) -> None:
        self.solver = solver
        self.holds = holds
        self.fails = fails
        self.followed = followed
        self.bounds = bounds
        self.low = low
        self.high = high
        self.unique = unique
        self.values = values
        self.prefix_len = prefix_len

    def run(self, index: int, counts: tuple[int, ...]) -> bool:
        """Whether it can, from ``index`` items on."""
        start = (
            index,
            self._clamp(counts),
            frozenset(range(len(self.fails))),
            self.unique is False,
        )
        came: dict[object, tuple[object, Formula] | None] = {start: None}
        queue = deque([start])
        while queue:
            state = queue.popleft()
            index, counts, left, want_equal = state
            if self._may_end(index, counts, left, want_equal) and self._distinct(state, came):
                return True
            if self.high is not None and index >= self.high:
                continue
            for following, node in self._steps(index, counts, left, want_equal):
                if following not in came:
                    came[following] = (state, node)
                    queue.append(following)
        return False

    def _clamp(self, counts: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(
            min(n, low if high is None else high + 1)
            for n, (low, high) in zip(counts, self.bounds, strict=True)
        )

    def _may_end(
        self, index: int, counts: tuple[int, ...], left: frozenset[int], want_equal: bool
    ) -> bool:
        return (
            index >= self.low
            and (self.high is None or index <= self.high)
            and not left
            and not want_equal
            and all(
                low <= n and (high is None or n <= high)
                for n, (low, high) in zip(counts, self.bounds, strict=True)
            )
        )

    def _steps(  # type: ignore[no-untyped-def]
        self, index: int, counts: tuple[int, ...], left: frozenset[int], want_equal: bool
    ):
        """What one item more can lead to, each with a node that does it."""
        # Past all bounds, more items change nothing.
        following_index = min(index + 1, max(self.low, self.prefix_len, (self.high or 0)))
        if self.high is not None:
            following_index = index + 1
        must = [_item(a, index) for a in self.holds]
        if self.unique:
            must.append(_is_new(self.values))
        for failing in _subsets(sorted(left)):
            violated = [negate(_item(self.fails[i], index)) for i in failing]
            for found in itertools.product((True, False), repeat=len(self.followed)):
                self.solver.count_branch()
                after = self._clamp(tuple(n + f for n, f in zip(counts, found, strict=True)))
                if any(
                    high is not None and n > high
                    for n, (_, high) in zip(after, self.bounds, strict=True)
                ):
                    continue
                node = all_of(
                    [
                        *must,
                        *violated,
                        *(signed(c.node, f) for c, f in zip(self.followed, found, strict=True)),
                    ]
                )
                if self.solver.satisfiable(node):
                    yield (following_index, after, left - set(failing), want_equal), node
                if want_equal:
                    equal = all_of([node, any_of(atom(Const(v)) for v in self.values)])
                    if self.solver.satisfiable(equal):
                        yield (following_index, after, left - set(failing), False), equal
                    twice = all_of([node, *(_item(a, index + 1) for a in self.holds)])
                    after_two = self._clamp(
                        tuple(n + 2 * f for n, f in zip(counts, found, strict=True))
                    )
                    fits = self.high is None or index + 2 <= self.high
                    if fits and self.solver.satisfiable(twice):
                        yield (following_index + 1, after_two, left - set(failing), False), twice

    def _distinct(self, state: object, came: dict[object, tuple[object, Formula] | None]) -> bool:
        """Whether the items that led to a state can all be different, if they must."""
        if not self.unique:
            return True
        choices = []
        step = came[state]
        while step is not None:
            found = values_of(self.solver, step[1])
            if found is not None:
                choices.append(sorted(found, key=repr))
            step = came[step[0]]
        # A maximum matching of items to values (Kuhn, 1955).
        owner: dict[Hashable, int] = {}

        def place(item: int, tried: set[Hashable]) -> bool:
            for value in choices[item]:
                if value not in tried:
                    tried.add(value)
                    if value not in owner or place(owner[value], tried):
                        owner[value] = item
                        return True
            return False

        return all(place(i, set()) for i in range(len(choices)))


def _item(items: Items, index: int) -> Formula:
    return items.prefix[index] if index < len(items.prefix) else items.rest


def _is_new(values: Sequence[Hashable]) -> Formula:
    return all_of(negate(atom(Const(v))) for v in values)


def _subsets(items: list[int]) -> list[tuple[int, ...]]:
    return [
        subset for size in range(len(items) + 1) for subset in itertools.combinations(items, size)
    ]


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

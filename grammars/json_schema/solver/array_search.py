"""Searches, item by item, for an array that meets a case of a formula."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Hashable, Iterator, Sequence

from ramet.grammars.json_schema.schema.atoms import Const, Contains, Items
from ramet.grammars.json_schema.schema.formula import Formula, all_of, any_of, atom, negate

from .solver import Solver
from .values_of import values_of

SearchState = tuple[int, tuple[int, ...], frozenset[int], bool]
"""The number of items; how many satisfy each ``Contains``; which atoms have yet to fail; whether
two items have yet to be equal."""


class Search:
    """Decides whether an array can be completed so that a case is met, item by item."""

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
        index: int,
        counts: tuple[int, ...],
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
        self._new = is_new(values)
        self.prefix_len = prefix_len
        self.needed: frozenset[Hashable] = frozenset()
        self._start: SearchState = (
            index,
            self._clamp(counts),
            frozenset(range(len(self.fails))),
            unique is False,
        )

    def run(self) -> bool:
        """Whether it can; if so, even without any single value that is not in ``needed``."""
        return self._run(self._start)

    def partners(self) -> Iterator[Formula]:
        """What items may be of which one must equal an item that is there already."""
        if not self._start[3]:
            return
        seen = {self._start}
        queue = deque(seen)
        while queue:
            state = queue.popleft()
            if self.high is not None and state[0] >= self.high:
                continue
            for following, node in self._steps(*state):
                if not following[3]:
                    continue
                if self._run((*following[:3], False)):
                    yield node
                if following not in seen:
                    seen.add(following)
                    queue.append(following)

    def _run(self, start: SearchState) -> bool:
        came: dict[SearchState, tuple[SearchState, Formula] | None] = {start: None}
        if self._is_end(start, came):
            return True
        order = itertools.count()
        queue = [(self._num_missing(start), next(order), start)]
        while queue:
            _, _, state = heapq.heappop(queue)
            if self.high is not None and state[0] >= self.high:
                continue
            for following, node in self._steps(*state):
                if following not in came:
                    came[following] = (state, node)
                    if self._is_end(following, came):
                        return True
                    heapq.heappush(queue, (self._num_missing(following), next(order), following))
        return False

    def _num_missing(self, state: SearchState) -> int:
        """How much has yet to come; what has least is looked at first."""
        _, counts, left, want_equal = state
        lacking = (low - n for n, (low, _) in zip(counts, self.bounds, strict=True) if n < low)
        return sum(lacking) + len(left) + want_equal

    def _clamp(self, counts: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(
            min(n, low if high is None else high + 1)
            for n, (low, high) in zip(counts, self.bounds, strict=True)
        )

    def _is_end(
        self, state: SearchState, came: dict[SearchState, tuple[SearchState, Formula] | None]
    ) -> bool:
        """Whether the array may end in a state."""
        index, counts, left, want_equal = state
        return (
            index >= self.low
            and (self.high is None or index <= self.high)
            and not left
            and not want_equal
            and all(
                low <= n and (high is None or n <= high)
                for n, (low, high) in zip(counts, self.bounds, strict=True)
            )
            and self._distinct(state, came)
        )

    def _steps(
        self, index: int, counts: tuple[int, ...], left: frozenset[int], want_equal: bool
    ) -> Iterator[tuple[SearchState, Formula]]:
        """What one item more can lead to, each with a node that does it."""
        # Past all bounds, more items change nothing.
        following_index = min(index + 1, max(self.low, self.prefix_len, (self.high or 0)))
        if self.high is not None:
            following_index = index + 1
        must = [item_node(a, index) for a in self.holds]
        if self.unique:
            must.append(self._new)
        for failing in _subsets(sorted(left)):
            violated = [negate(item_node(self.fails[i], index)) for i in failing]
            item = (all_of([*must, *violated]), *(c.node for c in self.followed))
            if not self.solver.satisfiable(item[0]):
                continue
            for found in self.solver.verdicts(item, self.solver.limits.max_branches):
                self.solver.count_branch()
                after = self._clamp(tuple(n + f for n, f in zip(counts, found, strict=True)))
                if any(
                    high is not None and n > high
                    for n, (_, high) in zip(after, self.bounds, strict=True)
                ):
                    continue
                node = self.solver.joined(item, found)
                yield (following_index, after, left - set(failing), want_equal), node
                if want_equal:
                    equal = all_of([node, any_of(map(equal_to, self.values))])
                    if self.solver.satisfiable(equal):
                        yield (following_index, after, left - set(failing), False), equal
                    twice = all_of([node, *(item_node(a, index + 1) for a in self.holds)])
                    after_two = self._clamp(
                        tuple(n + 2 * f for n, f in zip(counts, found, strict=True))
                    )
                    fits = self.high is None or index + 2 <= self.high
                    if fits and self.solver.satisfiable(twice):
                        yield (following_index + 1, after_two, left - set(failing), False), twice

    def _distinct(
        self, state: SearchState, came: dict[SearchState, tuple[SearchState, Formula] | None]
    ) -> bool:
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

        if not all(place(i, set()) for i in range(len(choices))):
            return False
        # Items with more choices than there are items can spare any one value.
        few = [found for found in choices if len(found) <= len(choices)]
        self.needed = frozenset(v for found in few for v in found)
        return True


def item_node(items: Items, index: int) -> Formula:
    """An atom's condition on the item at an index."""
    return items.prefix[index] if index < len(items.prefix) else items.rest


def is_new(values: Sequence[Hashable]) -> Formula:
    """The node of the values that are none of some, as far as those are known."""
    return all_of(negate(equal_to(v)) for v in values if not isinstance(v, Formula))


def equal_to(value: Hashable) -> Formula:
    """The node of the values equal to one; of one of which only the node is known, that node."""
    return value if isinstance(value, Formula) else atom(Const(value))


def _subsets(items: list[int]) -> list[tuple[int, ...]]:
    return [
        subset for size in range(len(items) + 1) for subset in itertools.combinations(items, size)
    ]

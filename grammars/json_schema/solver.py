"""Whether a value exists: the question behind "no dead ends" and "impossible schemas are refused".

A formula over atoms is searched case by case, as a tableau (Smullyan, 1968): cases that contradict
themselves are dropped on the way, and the search ends at the first case that can be met. Whether a
case of objects or arrays can be met is asked of its plan (``objects.py``, ``arrays.py``).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING

from ..errors import GrammarTooComplexError
from ..limits import CompileLimits
from .formula import Formula, all_of, negate
from .languages import Languages
from .typed import Typer

if TYPE_CHECKING:
    from .arrays import ArrayPlan
    from .objects import ObjectPlan

_MAX_VERDICTS = 256

Case = dict[Hashable, bool]
"""A truth for some atoms, which makes a formula true whatever the others are."""


class Solver:
    """Answers of one compilation, remembered."""

    def __init__(self, typer: Typer, languages: Languages, limits: CompileLimits) -> None:
        self.typer = typer
        self.languages = languages
        self.limits = limits
        self.num_branches = 0
        self._known: dict[tuple[Formula, str], bool] = {}
        self._verdicts: dict[
            tuple[Formula, ...], tuple[list[tuple[bool, ...]], Iterator[tuple[bool, ...]]]
        ] = {}
        self._open: dict[tuple[Formula, str], int] = {}
        self._lowest_asked = 0
        self._object_plans: dict[tuple[Formula, ...], ObjectPlan] = {}
        self._array_plans: dict[tuple[Formula, ...], ArrayPlan] = {}

    def object_plan(self, formulas: tuple[Formula, ...]) -> ObjectPlan:
        """The plan of some typed formulas over objects."""
        from .objects import ObjectPlan

        plan = self._object_plans.get(formulas)
        if plan is None:
            plan = self._object_plans[formulas] = ObjectPlan(
                self, formulas, len(self._object_plans)
            )
        return plan

    def array_plan(self, formulas: tuple[Formula, ...]) -> ArrayPlan:
        """The plan of some typed formulas over arrays."""
        from .arrays import ArrayPlan

        plan = self._array_plans.get(formulas)
        if plan is None:
            plan = self._array_plans[formulas] = ArrayPlan(self, formulas, len(self._array_plans))
        return plan

    def satisfiable(self, node: Formula) -> bool:
        """Whether some value satisfies a node."""
        if node.op == "true":
            return True
        return node.op != "false" and any(self.has_kind(node, k) for k in self.typer.kinds(node))

    def has_kind(self, node: Formula, kind: str) -> bool:
        """Whether some value of a type satisfies a node.

        A value is finite, so a node that needs a value of its own inside it has none: while the
        answer is sought it is taken to be no, and an answer that leans on that is not remembered.
        """
        formula = self.typer.typed(node, kind)
        if formula.op in ("true", "false"):
            return formula.op == "true"
        if kind == "string":
            return not self.languages.texts(formula).is_empty
        if kind == "number":
            return not self.languages.numbers(formula).is_empty
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
            plan = (
                self.object_plan((formula,)) if kind == "object" else self.array_plan((formula,))
            )
            found = plan.can_begin()
        finally:
            del self._open[key]
            leans_on = self._lowest_asked
            self._lowest_asked = min(outer, leans_on)
        if found or leans_on >= depth:
            self._known[key] = found
        return found

    def verdicts(self, nodes: tuple[Formula, ...]) -> Iterator[tuple[bool, ...]]:
        """The verdicts that a value can have on all nodes but the first, which must hold.

        The more agreeable come first; they are looked for as they are asked for.
        """
        known = self._verdicts.get(nodes)
        if known is None:
            known = [], self._find_verdicts(nodes[0], nodes[1:], ())
            if not self.is_leaning:
                self._verdicts[nodes] = known
        found, more = known
        at = 0
        while True:
            while at < len(found):
                yield found[at]
                at += 1
            if len(found) > _MAX_VERDICTS:
                raise GrammarTooComplexError(
                    "", "anyOf", f"one value can meet over {_MAX_VERDICTS} mixes of alternatives"
                )
            verdict = next(more, None)
            if verdict is None:
                return
            found.append(verdict)

    def _find_verdicts(
        self, so_far: Formula, nodes: tuple[Formula, ...], verdict: tuple[bool, ...]
    ) -> Iterator[tuple[bool, ...]]:
        if not nodes:
            yield verdict
            return
        for truth in (True, False):
            joint = all_of([so_far, signed(nodes[0], truth)])
            if self.satisfiable(joint):
                yield from self._find_verdicts(joint, nodes[1:], (*verdict, truth))

    def begin(self) -> None:
        """Start a new decision: the limit on cases is for each."""
        if not self._open:
            self.num_branches = 0

    @property
    def is_leaning(self) -> bool:
        """Whether a search is under way, so that a "no" may be taken back."""
        return bool(self._open)

    def cases(self, goals: list[tuple[Formula, bool]]) -> Iterator[Case]:
        """Cases that make every formula have its truth; together they are all there are."""
        yield from self._expand(list(reversed(goals)), {})

    def _expand(self, goals: list[tuple[Formula, bool]], case: Case) -> Iterator[Case]:
        while goals:
            formula, truth = goals.pop()
            op = formula.op
            if op in ("true", "false"):
                if (op == "true") != truth:
                    return
            elif op == "atom":
                value = formula.parts[0]
                if case.setdefault(value, truth) != truth:
                    return
            elif op == "not":
                goals.append((formula.operands[0], not truth))
            elif (op == "all") == truth and op != "one":
                goals.extend((p, truth) for p in reversed(formula.operands))
            else:
                yield from self._branch(formula, truth, goals, case)
                return
        self.count_branch()
        yield case

    def _branch(
        self, formula: Formula, truth: bool, goals: list[tuple[Formula, bool]], case: Case
    ) -> Iterator[Case]:
        parts = formula.operands
        self.count_branch()
        if formula.op != "one":
            # Some part of a disjunction; the parts before it are not, lest cases overlap.
            for i, part in enumerate(parts):
                before = [(p, not truth) for p in parts[:i]]
                yield from self._expand([*goals, *before, (part, truth)], dict(case))
        elif truth:
            for i, part in enumerate(parts):
                others = [(p, False) for j, p in enumerate(parts) if j != i]
                yield from self._expand([*goals, *others, (part, True)], dict(case))
        else:
            yield from self._expand([*goals, *((p, False) for p in parts)], dict(case))
            for i, first in enumerate(parts):
                for j in range(i + 1, len(parts)):
                    between = [(p, False) for p in parts[:i]] + [
                        (p, False) for p in parts[i + 1 : j]
                    ]
                    yield from self._expand(
                        [*goals, *between, (first, True), (parts[j], True)], dict(case)
                    )

    def count_branch(self) -> None:
        """Count one case against the limit."""
        self.num_branches += 1
        if self.num_branches > self.limits.max_branches:
            raise GrammarTooComplexError(
                "", "oneOf", f"deciding it takes more than {self.limits.max_branches} cases"
            )


def signed(node: Formula, truth: bool) -> Formula:
    """The node, or its negation."""
    return node if truth else negate(node)

"""A solver with its plans of objects and arrays."""

from __future__ import annotations

from ramet.grammars.json_schema.schema.formula import Formula
from ramet.grammars.limits import CompileLimits

from .arrays import ArrayPlan
from .formulas.keyword_formulas import Typer
from .objects import ObjectPlan
from .solver import Solver
from .value_sets.languages import Languages


class PlanSolver(Solver):
    """A ``Solver`` that makes a plan for each set of formulas once."""

    def __init__(self, typer: Typer, languages: Languages, limits: CompileLimits) -> None:
        super().__init__(typer, languages, limits)
        self._object_plans: dict[tuple[Formula, ...], ObjectPlan] = {}
        self._array_plans: dict[tuple[Formula, ...], ArrayPlan] = {}

    def object_plan(self, formulas: tuple[Formula, ...]) -> ObjectPlan:
        plan = self._object_plans.get(formulas)
        if plan is None:
            plan = self._object_plans[formulas] = ObjectPlan(
                self, formulas, len(self._object_plans)
            )
        return plan

    def array_plan(self, formulas: tuple[Formula, ...]) -> ArrayPlan:
        plan = self._array_plans.get(formulas)
        if plan is None:
            plan = self._array_plans[formulas] = ArrayPlan(self, formulas, len(self._array_plans))
        return plan

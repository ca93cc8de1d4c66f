"""Plans of values: the possible scalars with their verdicts, and whether objects or arrays."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from ramet.grammars.json_schema.schema.atoms import Integer
from ramet.grammars.json_schema.schema.documents import Documents, Leaf
from ramet.grammars.json_schema.schema.formula import TRUE, Formula, atom
from ramet.grammars.json_schema.schema.layout import Layout
from ramet.grammars.json_schema.schema.number_form import NumberForm, with_short_runs
from ramet.grammars.json_schema.solver.children import Child
from ramet.grammars.json_schema.solver.differing import Differing
from ramet.grammars.json_schema.solver.formulas.keyword_formulas import Typer
from ramet.grammars.json_schema.solver.frames import Frame
from ramet.grammars.json_schema.solver.object_search import bits_of
from ramet.grammars.json_schema.solver.objects import ObjectPlan
from ramet.grammars.json_schema.solver.plans import PlanSolver
from ramet.grammars.json_schema.solver.value_sets.number_search import NumberSearch
from ramet.grammars.json_schema.solver.value_sets.text_sets import TextSet
from ramet.grammars.json_schema.text.lexemes import (
    ARRAY,
    FIRST_SCALAR,
    OBJECT,
)
from ramet.grammars.json_schema.text.literal_text import LiteralText
from ramet.grammars.json_schema.text.text_lexemes import (
    KeyClosing,
    TextLexeme,
)
from ramet.grammars.pushdown.context_table import After, Context, ContextTable
from ramet.grammars.regular import Dfa

from .value_parts import ValueParts, check_size, number_lexeme, text_lexeme

Verdict = tuple[bool, ...]


class OpenObject(Protocol):
    """An open object, as far as it decides which properties may come next."""

    plan: ObjectPlan
    goals: tuple[Verdict, ...]
    residual: tuple[Formula, ...]
    seen: int
    count: int
    used: tuple[int, ...]
    floor: int
    label: int

    def verdict(self) -> Verdict: ...


class Opener(Protocol):
    """Finds what comes after the bracket that opens an object or array."""

    def __call__(
        self,
        table: ContextTable,
        value_plan: ValuePlan,
        frame: Frame,
        outer: Callable[[], Context | None],
        *,
        is_object: bool,
    ) -> After: ...


class Values:
    """The plans of one compiled schema's values, names and objects, computed on demand.

    Attributes:
        any_order: an object's properties come in any order; otherwise in the schema's (in an
            object with others, those that are optional may come late).
        number_form: how numbers are written.
        unique_items: by node, the values of an array's items that must differ.
        opened: finds the context after an opening bracket.
    """

    def __init__(
        self, solver: PlanSolver, opened: Opener, *, any_order: bool, number_form: NumberForm
    ) -> None:
        self.solver = solver
        self.opened = opened
        self.any_order = any_order
        self.number_form = number_form
        self._single: dict[Formula, ValuePlan] = {}
        self._plans: dict[object, ValuePlan] = {}
        self._names: dict[object, TextLexeme] = {}
        self._live: dict[object, int] = {}
        self._open: dict[int, bool] = {}
        self._differing: dict[int, Differing | None] = {}
        self.unique_items: dict[Formula, Any] = {}

    def plan(self, nodes: tuple[Formula, ...], accepts: Callable[[Verdict], bool]) -> ValuePlan:
        """The plan for a value in which ``nodes`` are followed and some verdicts are acceptable."""
        if len(nodes) == 1:
            node = nodes[0]
            plan = self._single.get(node)
            if plan is None:
                plan = self._anything() if node.op == "true" else ValuePlan(self, nodes, ((),))
                self._single[node] = plan
            return plan
        verdicts = tuple(v for v in self.solver.verdicts(nodes) if accepts(v))
        key = (nodes, verdicts)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = ValuePlan(self, nodes, verdicts)
        return plan

    def _anything(self) -> ValuePlan:
        """The plan for any value at all: one for all schemas of a compiler, so that grammars have
        the same contexts for it."""
        languages = self.solver.languages

        def make() -> ValuePlan:
            documents = Documents(True, {}, languages.limits)
            solver = PlanSolver(Typer(documents, languages), languages, languages.limits)
            values = Values(
                solver, self.opened, any_order=self.any_order, number_form=self.number_form
            )
            return ValuePlan(values, (TRUE,), ((),))

        return languages.remember(("anything", self.any_order, self.number_form), make)

    def prepare(self, root: Formula, count: int) -> None:
        """Computes in advance the plans of a node and of nodes inside it, at most ``count``."""
        pending = deque([root])
        seen = {root}
        for _ in range(count):
            if not pending:
                break
            plan = self.plan((pending.popleft(),), lambda _: True)
            for node in plan.prepare():
                if node not in seen:
                    seen.add(node)
                    pending.append(node)

    def never_runs_out(self, nodes: tuple[Formula, ...]) -> bool:
        """Whether every prefix of a value begins infinitely many values, all of them scalars."""
        typer = self.solver.typer
        numbers = typer.typed(nodes[0], "number")
        texts = typer.typed(nodes[0], "string")
        return (
            len(nodes) == 1
            and all(
                typer.typed(nodes[0], kind).op == "false"
                for kind in ("null", "true", "false", "object", "array")
            )
            and (numbers.op == "false" or self._has_endless(numbers))
            and (texts.op == "false" or self.solver.languages.texts(texts).never_runs_out)
        )

    def _has_endless(self, numbers: Formula) -> bool:
        """Whether every prefix of a number begins infinitely many."""
        if self.number_form.digits == "bounded":
            return False
        return numbers.op == "true" or numbers == atom(Integer())

    def texts(self, node: Formula) -> TextSet:
        """The strings that a node allows, as they are written."""
        languages = self.solver.languages
        typed = self.solver.typer.typed(node, "string")
        if self.number_form.digits == "bounded":
            short = with_short_runs(typed)
            if short is not typed and not languages.texts(short).is_empty:
                return languages.texts(short)
        return languages.texts(typed)

    def names(self, plan: ObjectPlan, layout: Layout) -> TextLexeme:
        """The lexeme of an object's names."""
        key = (plan.number, layout.kind)
        known = self._names.get(key)
        if known is None:
            closing = KeyClosing(layout)
            languages = self.solver.languages
            # Names that can't come needn't be distinguished.
            possible = plan.possible if plan.is_simple else -1
            classes = [(n, texts) for n, texts in enumerate(plan.classes, 1) if possible >> n & 1]
            base = text_lexeme(classes, languages, closing)
            if plan.names or base is None:
                check_size(plan.label_of, languages.limits)
                base = LiteralText(closing, plan.label_of, base)
            known = self._names[key] = base
        return known

    # -- objects that follow several formulas, or whose order is fixed -----------------------

    def object_live(self, frame: OpenObject, spent: int) -> int:
        """The labels that may come next in an object, as bits."""
        plan = frame.plan
        key = (
            plan.number, frame.residual, frame.seen, frame.count, spent, frame.goals, frame.floor,
        )  # fmt: skip
        known = self._live.get(key)
        if known is None:
            live = 0
            if plan.holds_now(frame.residual[0], frame.seen, frame.count):
                live |= frame.verdict() in frame.goals
            free = self._free(frame, spent)
            differing = self._differing_of(frame)
            if differing is not None:
                sure, free = differing.live(
                    frame.residual[0], frame.seen, frame.count, frame.floor, free
                )
                live |= sure
            for label in bits_of(free):
                child = plan.child(frame.residual, label)
                if self.solver.satisfiable(child.nodes[0]) and any(
                    self.object_accepts(frame, label, child, v)
                    for v in self.solver.verdicts(child.nodes)
                ):
                    live |= 1 << label
            known = self._live[key] = live
        return known

    def _free(self, frame: OpenObject, spent: int) -> int:
        """The labels that are ruled out neither by present names nor by the order."""
        plan = frame.plan
        free = ((1 << plan.num_labels) - 2) & ~(frame.seen | spent)
        if frame.floor > plan.first_name and not self._is_open(plan):
            free &= (1 << plan.first_name) - 1 | -(1 << frame.floor)
        return free

    def _is_open(self, plan: ObjectPlan) -> bool:
        """Whether an object may have properties that aren't listed.

        Their names may begin like a listed one that comes late, which is distinguished from them
        only at its end: it is accepted then, under its own schema.
        """
        known = self._open.get(plan.number)
        if known is None:
            nodes = (plan.child(plan.formulas, n).nodes[0] for n in range(1, plan.first_name))
            known = any(map(self.solver.satisfiable, nodes))
            if not self.solver.is_leaning:
                self._open[plan.number] = known
        return known

    def _differing_of(self, frame: OpenObject) -> Differing | None:
        """How an object differs from given ones, if it is plain apart from that."""
        plan = frame.plan
        if plan.is_simple or frame.goals != ((),):
            return None
        if plan.number not in self._differing:
            self._differing[plan.number] = Differing.of(plan, in_order=not self.any_order)
        return self._differing[plan.number]

    def object_accepts(self, frame: OpenObject, label: int, child: Child, verdict: Verdict) -> bool:
        """Whether an object can be completed after a property with a verdict."""
        plan = frame.plan
        seen = frame.seen | (1 << label if label >= plan.first_name else 0)
        used = list(frame.used)
        if label < plan.first_name and plan.classes[label - 1].size is not None and not frame.label:
            used[label - 1] += 1
        spent = 0
        for i, texts in enumerate(plan.classes):
            if texts.size is not None and used[i] >= texts.size:
                spent |= 2 << i
        residual = plan.after_child(frame.residual, child, verdict)
        differing = self._differing_of(frame)
        if differing is not None and differing.leaves_room(
            residual[0], frame.seen, frame.count, frame.floor, label
        ):
            return True
        self.solver.begin()
        return plan.can_end_with(
            residual, seen, frame.count + 1, spent, frame.goals,
            ordered_from=0 if self.any_order else plan.floor_after(label, frame.floor),
        )  # fmt: skip


class ValuePlan:
    """The plan of a value: what may stand in its place.

    Attributes:
        verdicts: the acceptable verdicts on all nodes but the first, which must hold.
    """

    def __init__(
        self, values: Values, nodes: tuple[Formula, ...], verdicts: tuple[Verdict, ...]
    ) -> None:
        self.values = values
        self.nodes = nodes
        self.verdicts = verdicts
        self._parts: ValueParts | None = None

    def verdict_of(self, label: int) -> Verdict:
        """The verdict of a scalar that ended with a label."""
        return self.verdicts[label - FIRST_SCALAR]

    @property
    def scalar_labels(self) -> range:
        """The labels with which a scalar may end, at most."""
        count = len(self.verdicts) if self.parts.has_scalars else 0
        return range(FIRST_SCALAR, FIRST_SCALAR + count)

    @property
    def parts(self) -> ValueParts:
        """The value's parts; those of one subschema are computed once for all its places."""
        parts = self._parts
        if parts is None:
            node = self.nodes[0]
            leaf = node.parts[0] if node.op == "atom" and len(self.nodes) == 1 else None
            form = self.values.number_form
            if isinstance(leaf, Leaf):
                parts = leaf.parts.get(form)
                if parts is None:
                    parts = leaf.parts[form] = self._make_parts()
            else:
                parts = self._make_parts()
            self._parts = parts
        return parts

    def prepare(self) -> list[Formula]:
        """Computes the plan; returns the nodes inside that are followed alone."""
        brackets = self.parts.brackets
        solver = self.values.solver
        found: list[Formula] = []
        if OBJECT in brackets:
            objects = solver.object_plan(self.formulas("object"))
            if objects.is_simple:
                possible = objects.possible
                found.extend(
                    objects.child(objects.formulas, label).nodes[0]
                    for label in range(1, objects.num_labels)
                    if possible >> label & 1
                )
        if ARRAY in brackets:
            arrays = solver.array_plan(self.formulas("array"))
            if arrays.is_simple:
                found.append(arrays.child(arrays.start).nodes[0])
        return found

    def _make_parts(self) -> ValueParts:
        solver = self.values.solver
        languages = solver.languages
        texts: list[tuple[int, TextSet]] = []
        numbers: list[tuple[int, Formula, Dfa | NumberSearch]] = []
        literals: dict[str, int] = {}
        brackets: set[int] = set()
        for i, verdict in enumerate(self.verdicts):
            node = solver.joined(self.nodes, verdict)
            if node.op == "false":
                continue
            label = FIRST_SCALAR + i
            for kind in solver.typer.kinds(node):
                if kind == "string":
                    found = self.values.texts(node)
                    if not found.is_empty:
                        texts.append((label, found))
                elif kind == "number":
                    formula = solver.typer.typed(node, kind)
                    allowed = languages.number_set(formula, self.values.number_form)
                    if not allowed.is_empty:
                        numbers.append((label, formula, allowed))
                elif kind in ("object", "array"):
                    bracket = OBJECT if kind == "object" else ARRAY
                    if bracket not in brackets and solver.has_kind(node, kind):
                        brackets.add(bracket)
                elif solver.has_kind(node, kind):
                    literals[kind] = label
        return ValueParts(
            text_lexeme(texts, languages),
            number_lexeme(numbers, self.values.number_form),
            literals,
            frozenset(brackets),
        )

    def formulas(self, kind: str) -> tuple[Formula, ...]:
        """What is followed in an object or array."""
        typer = self.values.solver.typer
        return tuple(typer.typed(n, kind) for n in self.nodes)

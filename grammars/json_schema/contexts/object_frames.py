"""Frames of objects that need more state than the properties seen so far.

These follow alternatives, have a fixed order, names that may run out, or recorded values. The
others are in ``plain.py``.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable

from ramet.grammars.json_schema.schema.formula import Formula
from ramet.grammars.json_schema.schema.layout import Layout
from ramet.grammars.json_schema.solver.children import Child
from ramet.grammars.json_schema.solver.frames import UNKNOWN, Frame, OpenFrame
from ramet.grammars.json_schema.solver.missing_names import missing_names
from ramet.grammars.json_schema.solver.object_search import bits_of
from ramet.grammars.json_schema.solver.objects import CLOSE as CLOSE_OBJECT
from ramet.grammars.json_schema.solver.objects import ObjectPlan
from ramet.grammars.json_schema.text.excluded_text import excluding
from ramet.grammars.json_schema.text.text_lexemes import TextLexeme
from ramet.grammars.pushdown.context_table import After, Context, ContextTable
from ramet.grammars.pushdown.state_table import Lexeme

from .contexts import AfterContext, UndecidedContext, ValueContext, pushed, undecided_after
from .values_plan import ValuePlan, Values, Verdict


class KeyContext(Context):
    """A property's name comes next (or, at an object's beginning, its closing brace)."""

    __slots__ = ("first", "frame")

    def __init__(self, frame: ObjectFrame, *, first: bool) -> None:
        self.frame = frame
        self.first = first

    @property
    def captures(self) -> bool:  # type: ignore[override]
        return bool(self.frame.plan.classes) or self.frame.is_recording

    @property
    def key(self) -> Hashable:
        return ("key", self.frame.id, self.first)

    def lexeme(self, pushdown: ContextTable) -> Lexeme | None:
        frame = self.frame
        layout = frame.layout
        return frame.names.keyed(layout.before_item(), layout.empty_close() if self.first else None)

    def live(self) -> int | None:
        live = self.frame.live()
        return live if self.first else live & ~(1 << CLOSE_OBJECT)

    def likely(self) -> Iterable[int]:
        frame = self.frame
        if frame.is_recording:
            return ()
        classes = (1 << frame.plan.first_name) - 1
        live = frame.live() & ~(1 << CLOSE_OBJECT)
        return (*bits_of(live & ~classes), *bits_of(live & classes))

    def completing_labels(self) -> list[int]:
        frame = self.frame
        live = frame.live()
        if self.first and live >> CLOSE_OBJECT & 1:
            return [CLOSE_OBJECT]
        live &= ~(1 << CLOSE_OBJECT)
        required, useful = missing_names(frame.residual, frame.seen, frame.plan.label_of)
        if required & live:
            return [next(bits_of(required & live))]
        return list(bits_of(useful & live or live))

    def after(self, pushdown: ContextTable, label: int, text: bytes | None) -> After:
        if label == CLOSE_OBJECT:
            return self.frame.close(pushdown)
        plan = self.frame.plan
        is_unknown = self.frame.is_undecided or (text is None and plan.is_wide)
        if is_unknown and label < plan.first_name:
            return pushdown.intern(UndecidedContext())
        name = None if text is None else json.loads(text[: text.rindex(b'"') + 1])
        return self.frame.property(pushdown, label, name)


class ObjectFrame(OpenFrame):
    """An open object, between two properties or (``label`` is set) in a property's value.

    Attributes:
        values: the value plans of the schema.
        plan, goals: the object's plan, and the acceptable verdicts on its formulas.
        residual: the plan's formulas, with decided parts removed.
        seen: the labels of the properties so far, as bits.
        count: the number of properties so far, as far as that matters.
        used: by class with finitely many names, the number of its names so far.
        names: the lexeme of the names that may come.
        names_id: the pushdown table's number for ``names``.
        is_undecided: one more name must not be repeated, but is unknown.
        floor: names with labels below it can't come any more (if the order is fixed).
        content: the properties' names and values, if they are recorded.
    """

    __slots__ = (
        "_live", "child", "content", "count", "floor", "goals", "is_recording", "is_undecided",
        "label", "names", "names_id", "parent", "plan", "residual", "seen", "used", "values",
    )  # fmt: skip

    bracket = 0x7D

    def __init__(
        self,
        pushdown: ContextTable,
        values: Values,
        plan: ObjectPlan,
        goals: tuple[Verdict, ...],
        parent: Frame,
        layout: Layout,
        names: TextLexeme,
        names_id: int,
        residual: tuple[Formula, ...],
        seen: int,
        count: int,
        used: tuple[int, ...],
        floor: int,
        label: int,
        child: Child | None,
        content: Hashable,
        is_undecided: bool,
    ) -> None:
        self.values = values
        self.plan = plan
        self.goals = goals
        self.parent = parent
        self.layout = layout
        self.names = names
        self.names_id = names_id
        self.residual = residual
        self.seen = seen
        self.count = count
        self.used = used
        self.floor = floor
        self.label = label
        self.child = child
        self.content = content
        self.is_undecided = is_undecided
        self.is_recording = self.records = parent.records
        self._live = -1
        self.id = pushdown.number(
            (
                "object", plan, goals, residual, seen, count, used, names_id, is_undecided,
                floor, content, label, parent.id,
            )
        )  # fmt: skip

    @classmethod
    def opened(cls, pushdown: ContextTable, value_plan: ValuePlan, parent: Frame) -> Context:
        """The context after an opening brace."""
        values = value_plan.values
        plan = values.solver.object_plan(value_plan.formulas("object"))
        layout = parent.layout.deeper()
        names = values.names(plan, layout)
        frame = cls(
            pushdown, values, plan, value_plan.verdicts, parent, layout, names,
            pushdown.number(names.key), plan.formulas, 0, 0, (0,) * len(plan.classes), 0, 0, None,
            () if parent.records else None, is_undecided=False,
        )  # fmt: skip
        return pushdown.intern(KeyContext(frame, first=True))

    # -- deciding ---------------------------------------------------------------------------

    def live(self) -> int:
        """The labels that may come next (``CLOSE`` too), as bits."""
        if self._live < 0:
            self._live = self._find_live()
        return self._live

    def _find_live(self) -> int:
        plan = self.plan
        spent = 0
        if plan.has_finite_classes:
            for i, texts in enumerate(plan.classes):
                if texts.size is not None and self.used[i] >= texts.size:
                    spent |= 2 << i
        if plan.is_simple and self.values.any_order:
            return plan.live_labels(self.seen, self.count, spent)
        return self.values.object_live(self, spent)

    def choices(self) -> tuple[bool, bool]:
        """Whether there may be another property, and whether the object may end."""
        live = self.live()
        return live > 1, bool(live & 1)

    def accepts(self, verdict: Verdict) -> bool:
        assert self.child is not None
        if self.plan.is_simple:
            return True
        return self.values.object_accepts(self, self.label, self.child, verdict)

    # -- moving -----------------------------------------------------------------------------

    def property(self, pushdown: ContextTable, label: int, name: str | None) -> After:
        """The context of the value of a property with this label."""
        plan = self.plan
        child = plan.child(self.residual, label)
        if name is not None:
            child = plan.named_child(self.residual, label, name)
        names, names_id, used = self.names, self.names_id, self.used
        is_undecided = self.is_undecided
        if label < plan.first_name:
            if name is None:
                is_undecided = True
            else:
                names = excluding(pushdown.state_table, names, name)
                names_id = pushdown.number(names.key)
            if plan.classes[label - 1].size is not None:
                used = tuple(n + (i + 1 == label) for i, n in enumerate(used))
        content = self.content
        if self.is_recording and content is not None:
            if label >= plan.first_name:
                name = plan.names[label - plan.first_name]
            content = (*content, name)  # type: ignore[misc]
        frame = ObjectFrame(
            pushdown, self.values, plan, self.goals, self.parent, self.layout, names, names_id,
            self.residual, self.seen, self.count, used, self.floor, label, child, content,
            is_undecided,
        )  # fmt: skip
        value_plan = self.values.plan(child.nodes, frame.accepts)
        prefixes = self.layout.after_colon()
        if len(child.nodes) == 1 and not self.records:
            return pushed(pushdown, value_plan, frame, prefixes)
        return pushdown.intern(ValueContext(value_plan, frame, prefixes))

    def child_done(self, pushdown: ContextTable, verdict: Verdict, value: Hashable) -> After:
        plan = self.plan
        assert self.child is not None
        seen, residual = self.seen, self.residual
        if self.label >= plan.first_name:
            seen |= 1 << self.label
        if not plan.is_simple:
            residual = plan.after_child(residual, self.child, verdict)
            residual = plan.settled(residual, seen)
            if residual[0].op == "false":
                return None
        content = self.content
        if self.is_recording and isinstance(content, tuple) and content != UNKNOWN:
            if value == UNKNOWN or content[-1] is None:
                return pushdown.intern(undecided_after(self))
            content = (*content[:-1], (content[-1], value))
        floor = self.floor
        if not self.values.any_order:
            floor = plan.floor_after(self.label, floor)
        frame = ObjectFrame(
            pushdown, self.values, plan, self.goals, self.parent, self.layout, self.names,
            self.names_id, residual, seen, min(self.count + 1, plan.max_count), self.used, floor, 0,
            None, content, self.is_undecided,
        )  # fmt: skip
        return pushdown.intern(AfterContext(frame))

    def go_on(self, pushdown: ContextTable) -> Context:
        """The context after a comma."""
        if self.is_undecided and not self.plan.never_runs_out:
            return pushdown.intern(UndecidedContext())
        return pushdown.intern(KeyContext(self, first=False))

    def close(self, pushdown: ContextTable) -> After:
        """The context after the closing brace."""
        verdict = self.verdict()
        if verdict not in self.goals:
            return None
        value: Hashable = None
        if self.is_recording:
            value = UNKNOWN
            if isinstance(self.content, tuple) and self.content != UNKNOWN:
                value = ("object", frozenset(self.content))
        return self.parent.child_done(pushdown, verdict, value)

    def verdict(self) -> Verdict:
        """The verdicts if the object ends here."""
        return tuple(self.plan.holds_now(f, self.seen, self.count) for f in self.residual[1:])

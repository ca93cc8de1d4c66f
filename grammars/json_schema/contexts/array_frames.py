"""Frames of arrays whose items are distinguished, counted by ``contains``, or must differ.

Arrays of which only the number of items matters are in ``plain.py``.
"""

from __future__ import annotations

from collections.abc import Hashable

from ramet.grammars.json_schema.schema.formula import FALSE
from ramet.grammars.json_schema.schema.layout import Layout
from ramet.grammars.json_schema.solver.arrays import ArrayPlan, State
from ramet.grammars.json_schema.solver.children import Child
from ramet.grammars.json_schema.solver.frames import UNKNOWN, Frame, OpenFrame
from ramet.grammars.pushdown.context_table import After, ContextTable

from .contexts import AfterContext, ValueContext, pushed, undecided_after
from .values_plan import ValuePlan, Values, Verdict


class ArrayFrame(OpenFrame):
    """An open array, between two items or (``child`` is set) in an item.

    Attributes:
        values, plan, goals: as in an ``ObjectFrame``.
        state: the plan's state.
        content: the items' values, if they are recorded.
    """

    __slots__ = (
        "_next", "child", "content", "goals", "is_recording", "parent", "plan", "state", "values",
    )  # fmt: skip

    bracket = 0x5D
    values: Values
    plan: ArrayPlan
    goals: tuple[Verdict, ...]
    state: State
    content: Hashable
    child: Child | None
    parent: Frame
    is_recording: bool

    def __init__(
        self,
        pushdown: ContextTable,
        values: Values,
        plan: ArrayPlan,
        goals: tuple[Verdict, ...],
        state: State,
        content: Hashable,
        child: Child | None,
        parent: Frame,
        layout: Layout,
    ) -> None:
        self.values = values
        self.plan = plan
        self.goals = goals
        self.state = state
        self.content = content
        self.child = child
        self.parent = parent
        self.layout = layout
        self._next: Child | None = None
        self.is_recording = parent.records
        self.records = parent.records or plan.has_unique
        nodes = None if child is None else child.nodes
        self.id = pushdown.number(("array", plan, goals, state, content, nodes, parent.id))

    @classmethod
    def opened(
        cls, pushdown: ContextTable, value_plan: ValuePlan, plan: ArrayPlan, parent: Frame
    ) -> After:
        """The context after the opening bracket."""
        values = value_plan.values
        frame = cls(
            pushdown, values, plan, value_plan.verdicts, plan.start,
            () if parent.records else None, None, parent, parent.layout.deeper(),
        )  # fmt: skip
        may_go_on, may_close = frame.choices()
        if not may_go_on:
            nothing = values.plan((FALSE,), lambda _: True)
            return pushdown.intern(
                ValueContext(nothing, frame, frame.layout.before_item(), may_close=True)
            )
        return frame._item(pushdown, may_close=may_close)

    def _with(
        self, pushdown: ContextTable, state: State, content: Hashable, child: Child | None
    ) -> ArrayFrame:
        return ArrayFrame(
            pushdown, self.values, self.plan, self.goals, state, content, child, self.parent,
            self.layout,
        )  # fmt: skip

    def next_child(self) -> Child:
        """What is followed in the next item."""
        if not self.plan.has_unique:
            return self.plan.child(self.state)
        if self._next is None:
            self._next = self.plan.exact_child(self.state, self.goals)
        return self._next

    def choices(self) -> tuple[bool, bool]:
        """Whether there may be another item, and whether the array may end."""
        plan = self.plan
        if plan.is_simple:
            _, index, _, _ = self.state
            return plan.can_go_on(self.state), index >= plan.low
        may_close = plan.holds_now(self.state[0][0], self.state) and self.verdict() in self.goals
        child = self.next_child()
        solver = self.values.solver
        if not solver.satisfiable(child.nodes[0]):
            return False, may_close
        return any(self._reaches(child, v) for v in solver.verdicts(child.nodes)), may_close

    def _reaches(self, child: Child, verdict: Verdict) -> bool:
        self.values.solver.begin()
        return self.plan.can_reach(self.state, child, verdict, self.goals)

    def accepts(self, verdict: Verdict) -> bool:
        assert self.child is not None
        return self.plan.is_simple or self._reaches(self.child, verdict)

    def _item(self, pushdown: ContextTable, *, may_close: bool) -> After:
        is_known = UNKNOWN not in self.state[3]
        child = self.next_child() if is_known else self.plan.child(self.state)
        frame = self._with(pushdown, self.state, self.content, child)
        plan = self.values.plan(child.nodes, frame.accepts)
        if len(child.nodes) == 1 and not self.records:
            return pushed(pushdown, plan, frame, self.layout.before_item(), may_close=may_close)
        return pushdown.intern(
            ValueContext(
                plan, frame, self.layout.before_item(), may_close=may_close, is_known=is_known
            )
        )

    def child_done(self, pushdown: ContextTable, verdict: Verdict, value: Hashable) -> After:
        assert self.child is not None
        state = self.plan.after_child(self.state, self.child, verdict, value)
        if state[0][0].op == "false":
            return None
        content = self.content
        if self.is_recording:
            assert isinstance(content, tuple)
            known = content != UNKNOWN and value != UNKNOWN
            content = (*content, value) if known else UNKNOWN
        if UNKNOWN in state[3] and not self._never_depends(state):
            return pushdown.intern(undecided_after(self))
        return pushdown.intern(AfterContext(self._with(pushdown, state, content, None)))

    def _never_depends(self, state: State) -> bool:
        """Whether what follows is the same for all items in ``state``."""
        plan = self.plan
        return plan.never_depends(state) and self.values.never_runs_out(plan.child(state).nodes)

    def go_on(self, pushdown: ContextTable) -> After:
        """The context after a comma."""
        return self._item(pushdown, may_close=False)

    def close(self, pushdown: ContextTable) -> After:
        """The context after the closing bracket."""
        verdict = self.verdict()
        if verdict not in self.goals:
            return None
        value: Hashable = None
        if self.is_recording:
            value = UNKNOWN if self.content == UNKNOWN else ("array", self.content)
        return self.parent.child_done(pushdown, verdict, value)

    def verdict(self) -> Verdict:
        """The verdicts if the array ends here."""
        return tuple(self.plan.holds_now(f, self.state) for f in self.state[0][1:])

"""Frames of arrays whose items must all differ, under one schema.

The next item is any value of that schema except the present ones: these are excluded from its
lexeme one by one, so that a mask costs no more after a hundred items than after two.
"""

from __future__ import annotations

from collections.abc import Hashable

from ramet.grammars.json_schema.schema.atoms import Items as ItemsAtom
from ramet.grammars.json_schema.schema.atoms import Length
from ramet.grammars.json_schema.schema.formula import FALSE, all_of, conjuncts
from ramet.grammars.json_schema.schema.layout import Layout
from ramet.grammars.json_schema.solver.array_search import item_node
from ramet.grammars.json_schema.solver.arrays import ArrayPlan
from ramet.grammars.json_schema.solver.frames import UNKNOWN, Frame, OpenFrame
from ramet.grammars.pushdown.context_table import After, ContextTable
from ramet.grammars.pushdown.state_table import Lexeme

from .contexts import AfterContext, UnsureContext, ValueContext, undecided_after
from .used_values import Items, UsedValues
from .values_plan import Values, Verdict


class UniqueArrayFrame(OpenFrame):
    """An open array, between two items or in one.

    Attributes:
        low, high: how many items there may be.
        used: the items' values.
        content: the same in order, if they are recorded; else None.
    """

    __slots__ = ("_choices", "content", "high", "low", "parent", "used")

    bracket = 0x5D

    def __init__(
        self,
        pushdown: ContextTable,
        used: UsedValues,
        low: int,
        high: int | None,
        content: Hashable,
        parent: Frame,
        layout: Layout,
    ) -> None:
        self.used = used
        self.low = low
        self.high = high
        self.content = content
        self.parent = parent
        self.layout = layout
        self.records = True
        may_go_on = (high is None or used.count < high) and used.has_more(pushdown)
        self._choices = may_go_on, used.count >= low
        self.id = pushdown.number(("unique", used.id, low, high, content is None, parent.id))

    @classmethod
    def fits(cls, plan: ArrayPlan, goals: tuple[Verdict, ...]) -> bool:
        """Whether a plan requires only one schema for all items, distinctness, and a number."""
        return (
            plan.is_plainly_unique and plan.has_unique and plan.prefix_len == 0 and goals == ((),)
        )

    @classmethod
    def opened(
        cls, pushdown: ContextTable, values: Values, plan: ArrayPlan, parent: Frame
    ) -> After:
        """The context after an opening bracket."""
        atoms = [p.parts[0] for p in conjuncts(plan.formulas[0])]
        node = all_of(item_node(a, 0) for a in atoms if isinstance(a, ItemsAtom))
        lengths = [a for a in atoms if isinstance(a, Length)]
        highs = [a.high for a in lengths if a.high is not None]
        items = values.unique_items.get(node)
        if items is None:
            items = values.unique_items[node] = Items(values, node)
        frame = cls(
            pushdown, UsedValues(pushdown, items, None, None),
            max((a.low for a in lengths), default=0), min(highs, default=None),
            () if parent.records else None, parent, parent.layout.deeper(),
        )  # fmt: skip
        may_go_on, may_close = frame.choices()
        if may_go_on:
            return frame.item(pushdown, may_close=may_close)
        nothing = values.plan((FALSE,), lambda _: True)
        return pushdown.intern(
            ValueContext(nothing, frame, frame.layout.before_item(), may_close=True)
        )

    def value_lexeme(
        self,
        pushdown: ContextTable,
        plan: object,
        prefixes: tuple[bytes, ...],
        close_prefixes: tuple[bytes, ...] | None,
    ) -> Lexeme | None:
        """The items' lexeme without the items that are there."""
        if plan is not self.used.plan():
            return None
        return self.used.lexeme(pushdown, prefixes, close_prefixes)

    def choices(self) -> tuple[bool, bool]:
        """Whether there may be another item, and whether the array may end."""
        return self._choices

    def accepts(self, verdict: Verdict) -> bool:
        return True

    def child_done(self, pushdown: ContextTable, verdict: Verdict, value: Hashable) -> After:
        content = self.content
        if value == UNKNOWN and (content is not None or not self.used.can_spare_one):
            return pushdown.intern(undecided_after(self))
        if isinstance(content, tuple):
            content = (*content, value)
        frame = UniqueArrayFrame(
            pushdown, UsedValues(pushdown, self.used.items, self.used, value), self.low, self.high,
            content, self.parent, self.layout,
        )  # fmt: skip
        return pushdown.intern(AfterContext(frame))

    def go_on(self, pushdown: ContextTable) -> After:
        """The context after a comma."""
        used = self.used
        if not used.is_known and not used.items.never_runs_out:
            return pushdown.intern(UnsureContext())
        return self.item(pushdown, may_close=False)

    def item(self, pushdown: ContextTable, *, may_close: bool) -> After:
        """The context of the next item."""
        return pushdown.intern(
            ValueContext(
                self.used.plan(),
                self,
                self.layout.before_item(),
                may_close=may_close,
                is_known=self.used.is_known,
            )
        )

    def close(self, pushdown: ContextTable) -> After:
        """The context after the closing bracket."""
        value = None if self.content is None else ("array", self.content)
        return self.parent.child_done(pushdown, (), value)

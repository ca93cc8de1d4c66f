"""Plain objects and arrays: their state is the set of properties, or the number of items, so far.

Most are plain. Compiled code keeps that state in a record (see ``stack_records.py``), so that a new
set of properties needs no new contexts. All others have Python frames (``object_frames.py``,
``array_frames.py``): schemas with alternatives, a fixed order, names that may run out, items that
must differ.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from ramet.grammars.json_schema.schema.formula import FALSE
from ramet.grammars.json_schema.schema.layout import Layout
from ramet.grammars.json_schema.solver.arrays import ArrayPlan
from ramet.grammars.json_schema.solver.objects import ObjectPlan
from ramet.grammars.pushdown.automaton import NOTHING
from ramet.grammars.pushdown.context_table import After, Context, ContextTable, Push
from ramet.grammars.pushdown.stack_records import ARRAY, OBJECT
from ramet.grammars.pushdown.state_table import Lexeme
from ramet.grammars.pushdown.tables import AFTER_ITEMS, AFTER_PROPERTY, KEY

from .after_lexeme import after_lexeme
from .contexts import local_value
from .values_plan import ValuePlan, Values

_MAX_CLASSES = 62
_MAX_PREFIX = 1000


def opened_object(
    pushdown: ContextTable, value_plan: ValuePlan, layout: Layout, outer: Context | None
) -> Push | None:
    """The transition after an opening brace; None if the object isn't plain.

    ``layout`` is the one around it; ``outer`` as in ``Push``.
    """
    values = value_plan.values
    plan = values.solver.object_plan(value_plan.formulas("object"))
    if not _is_plain_object(values, plan):
        return None
    layout = layout.deeper()

    def make() -> list[int]:
        further = pushdown.intern(NameContext(values, plan, layout, first=False))
        after = pushdown.intern(AfterProperty(layout))
        pushdown.enter(further)
        pushdown.enter(after)
        state_table = pushdown.state_table
        return [
            OBJECT, (plan.num_labels + 63) // 64, plan.first_name, plan.low, plan.high,
            state_table.bit_set(plan.required), state_table.bit_set(plan.possible), further.id,
            after.id,
        ]  # fmt: skip

    first = pushdown.intern(NameContext(values, plan, layout, first=True))
    return Push(first, outer, pushdown.plan((plan, layout), make))


def opened_array(
    pushdown: ContextTable, value_plan: ValuePlan, layout: Layout, outer: Context | None
) -> Push | None:
    """The transition after an opening bracket; None if the array isn't plain."""
    values = value_plan.values
    plan = values.solver.array_plan(value_plan.formulas("array"))
    if not plan.is_simple or plan.prefix_len > _MAX_PREFIX:
        return None
    most = plan.most()
    layout = layout.deeper()
    item = ItemContext(values, plan, layout)

    def make() -> list[int]:
        after = pushdown.intern(AfterItem(layout))
        pushdown.enter(after)
        items = pushdown.intern(item)
        high = -1 if most is None else most
        return [ARRAY, plan.low, high, plan.prefix_len, items.id, after.id]

    offset = pushdown.plan((plan, layout), make)
    return Push(item.first(pushdown, may_go_on=most != 0), outer, offset)


def _is_plain_object(values: Values, plan: ObjectPlan) -> bool:
    if plan.is_wide or not plan.is_simple or not values.any_order:
        return False
    if len(plan.classes) > _MAX_CLASSES:
        return False
    possible = plan.possible >> 1
    return all(t.never_runs_out for i, t in enumerate(plan.classes) if possible >> i & 1)


class NameContext(Context):
    """A property's name comes next (or, at an object's beginning, its closing brace)."""

    __slots__ = ("layout", "may_close", "plan", "values")
    kind = KEY

    def __init__(self, values: Values, plan: ObjectPlan, layout: Layout, *, first: bool) -> None:
        self.values = values
        self.plan = plan
        self.layout = layout
        self.may_close = first

    @property
    def key(self) -> Hashable:
        return ("name", self.plan, self.layout, self.may_close)

    def lexeme(self, pushdown: ContextTable) -> Lexeme | None:
        layout = self.layout
        names = self.values.names(self.plan, layout)
        return names.keyed(layout.before_item(), layout.empty_close() if self.may_close else None)

    def likely(self) -> Iterable[int]:
        if self.may_close:
            return ()  # Records use the other context.
        possible = self.plan.possible
        return (label for label in range(1, self.plan.num_labels) if possible >> label & 1)

    def after(self, pushdown: ContextTable, label: int, text: bytes | None) -> After:
        plan = self.plan
        value_plan = self.values.plan(plan.child(plan.formulas, label).nodes, lambda _: True)
        return local_value(pushdown, value_plan, self.layout, self.layout.after_colon())


class AfterProperty(Context):
    """A comma or a closing brace comes next."""

    __slots__ = ("layout",)
    kind = AFTER_PROPERTY
    bracket = 0x7D

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    @property
    def key(self) -> Hashable:
        return ("after", self.bracket, self.layout)

    def lexeme(self, pushdown: ContextTable) -> Lexeme | None:
        return after_lexeme(self.bracket, self.layout)

    def after(self, pushdown: ContextTable, label: int, text: bytes | None) -> After:
        raise AssertionError("records determine what follows")


class AfterItem(AfterProperty):
    """A comma or a closing bracket comes next."""

    __slots__ = ()
    kind = AFTER_ITEMS
    bracket = 0x5D


class ItemContext(Context):
    """Stands for all items of an array: label i leads to the one at position i."""

    __slots__ = ("layout", "plan", "values")

    def __init__(self, values: Values, plan: ArrayPlan, layout: Layout) -> None:
        self.values = values
        self.plan = plan
        self.layout = layout

    @property
    def key(self) -> Hashable:
        return ("items", self.plan, self.layout)

    def lexeme(self, pushdown: ContextTable) -> Lexeme | None:
        return NOTHING

    def likely(self) -> Iterable[int]:
        return (0,)

    def after(self, pushdown: ContextTable, label: int, text: bytes | None) -> After:
        return local_value(
            pushdown, self._value_plan(label), self.layout, self.layout.before_item()
        )

    def first(self, pushdown: ContextTable, *, may_go_on: bool) -> Context:
        """The first item, or the closing bracket."""
        value_plan = self._value_plan(0)
        if not may_go_on:
            value_plan = self.values.plan((FALSE,), lambda _: True)
        may_close = self.plan.low == 0
        return local_value(
            pushdown, value_plan, self.layout, self.layout.before_item(), may_close=may_close
        )

    def _value_plan(self, index: int) -> ValuePlan:
        plan = self.plan
        nodes = plan.child((plan.start[0], index, (), ())).nodes
        return self.values.plan(nodes, lambda _: True)

"""The context after the bracket that opens an object or an array."""

from __future__ import annotations

from collections.abc import Callable

from ramet.grammars.json_schema.solver.frames import Frame
from ramet.grammars.pushdown.context_table import After, Context, ContextTable

from .array_frames import ArrayFrame
from .object_frames import ObjectFrame
from .plain import opened_array, opened_object
from .unique_frames import UniqueArrayFrame
from .values_plan import ValuePlan


def opened(
    table: ContextTable,
    value_plan: ValuePlan,
    frame: Frame,
    outer: Callable[[], Context | None],
    *,
    is_object: bool,
) -> After:
    """The context of a first key or item: above a record if the value is plain, else in a frame.

    Args:
        frame: the frame around the value.
        outer: gives the context that a plain value is pushed onto (see ``Push``).
    """
    if not frame.records:
        opened_plain = opened_object if is_object else opened_array
        push = opened_plain(table, value_plan, frame.layout, outer())
        if push is not None:
            return push
    if is_object:
        return ObjectFrame.opened(table, value_plan, frame)
    plan = value_plan.values.solver.array_plan(value_plan.formulas("array"))
    if UniqueArrayFrame.fits(plan, value_plan.verdicts):
        return UniqueArrayFrame.opened(table, value_plan.values, plan, frame)
    return ArrayFrame.opened(table, value_plan, plan, frame)

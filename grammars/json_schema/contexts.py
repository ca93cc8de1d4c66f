"""The contexts of a JSON text.

Frames and contexts are immutable: a step makes new ones, which share their parents, and a machine
interns contexts, so that equal states share masks. A text moves through them like this::

    Top ─ ValueContext ─{─ KeyContext ─"key":─ ValueContext ─ AfterContext ─,─ KeyContext
                       ─[─ ValueContext ─────────────────────  AfterContext ─,─ ValueContext
"""

# ruff: noqa: ARG002  (methods of one interface; not each needs all it is given)

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable

from ramet.grammars.automaton import NOTHING, After, Context, Lexeme, Pop, Push
from ramet.grammars.machine import Machine

from .arrays import ArrayPlan, State
from .excluded_text import excluding
from .formula import FALSE, Formula
from .frames import UNKNOWN, Frame
from .layout import Layout
from .lexemes import ARRAY, CLOSE, CLOSE_ARRAY, COMMA, OBJECT
from .objects import CLOSE as CLOSE_OBJECT
from .objects import Child, ObjectPlan
from .plain import after_lexeme, opened_array, opened_object
from .text_lexemes import TextLexeme
from .values import parse_scalar
from .values_plan import ValuePlan, Values, Verdict


class ValueContext(Context):
    """A value comes next (or, at an array's beginning, its closing bracket)."""

    __slots__ = ("_is_known", "frame", "may_close", "plan", "prefixes")

    def __init__(
        self,
        plan: ValuePlan,
        frame: Frame,
        prefixes: tuple[bytes, ...],
        *,
        may_close: bool = False,
        is_known: bool = True,
    ) -> None:
        self.plan = plan
        self.frame = frame
        self.prefixes = prefixes
        self.may_close = may_close
        self._is_known = is_known

    @property
    def captures(self) -> bool:  # type: ignore[override]
        return self.frame.records

    @property
    def key(self) -> Hashable:
        return (
            "value", self.plan, self.frame.id, self.prefixes, self.may_close, self._is_known,
        )  # fmt: skip

    def lexeme(self, machine: Machine) -> Lexeme | None:
        close = self.frame.layout.empty_close() if self.may_close else None
        return self.plan.lexeme(self.prefixes, close, is_recorded=self.frame.records)

    def likely(self) -> Iterable[int]:
        return () if self.frame.records else self.plan.brackets

    def after(self, machine: Machine, label: int, text: bytes | None) -> After:
        frame = self.frame
        if not self._is_known:
            return machine.intern(UndecidedContext())
        if label in (OBJECT, ARRAY):
            if not frame.records:
                opened = opened_object if label == OBJECT else opened_array
                push = opened(machine, self.plan, frame.layout, self._outer(machine))
                if push is not None:
                    return push
            kind = ObjectFrame if label == OBJECT else ArrayFrame
            return kind.opened(machine, self.plan, frame)
        if label == CLOSE_ARRAY:
            if isinstance(frame, ArrayFrame):
                return frame.close(machine)
            return Pop(ReturnContext.CLOSED)
        value: Hashable = None
        if frame.records:
            value = UNKNOWN if text is None else parse_scalar(text)
        return frame.child_done(machine, self.plan.verdict_of(label), value)

    def _outer(self, machine: Machine) -> Context | None:
        """What a value inside is pushed upon; None: what this value is pushed upon itself."""
        if isinstance(self.frame, LocalFrame):
            return None
        return machine.intern(ReturnContext(self.frame))


class ReturnContext(Context):
    """What a value was pushed upon: by ``DONE`` it has ended; by ``CLOSED`` the array's closing
    bracket came in place of its first item."""

    __slots__ = ("frame",)
    DONE, CLOSED = range(2)

    def __init__(self, frame: Frame) -> None:
        self.frame = frame

    @property
    def key(self) -> Hashable:
        return ("return", self.frame.id)

    def lexeme(self, machine: Machine) -> Lexeme | None:
        return NOTHING

    def after(self, machine: Machine, label: int, text: bytes | None) -> After:
        if label == self.DONE:
            return self.frame.child_done(machine, (), None)
        assert isinstance(self.frame, ArrayFrame)
        return self.frame.close(machine)


class LocalFrame(Frame):
    """Stands for whatever a value was pushed upon, where that makes no difference to the value."""

    __slots__ = ()

    def __init__(self, machine: Machine, layout: Layout) -> None:
        self.id = machine.number(("local", layout))
        self.layout = layout
        self.records = False

    def accepts(self, verdict: Verdict) -> bool:
        return True

    def child_done(self, machine: Machine, verdict: Verdict, value: Hashable) -> After:
        return Pop(ReturnContext.DONE)


def _pushed(
    machine: Machine,
    plan: ValuePlan,
    frame: ObjectFrame | ArrayFrame,
    prefixes: tuple[bytes, ...],
    *,
    may_close: bool = False,
) -> Push:
    """A value of which the frame around it needs to know nothing but that it has ended."""
    inner = local_value(machine, plan, frame.layout, prefixes, may_close=may_close)
    return Push(inner, machine.intern(ReturnContext(frame)))


def local_value(
    machine: Machine,
    plan: ValuePlan,
    layout: Layout,
    prefixes: tuple[bytes, ...],
    *,
    may_close: bool = False,
) -> Context:
    """A value that pops when it has ended."""
    local = LocalFrame(machine, layout)
    return machine.intern(ValueContext(plan, local, prefixes, may_close=may_close))


class AfterContext(Context):
    """A comma or a closing bracket comes next."""

    __slots__ = ("_live", "frame")

    def __init__(self, frame: ObjectFrame | ArrayFrame) -> None:
        self.frame = frame

    @property
    def key(self) -> Hashable:
        return ("after", self.frame.id)

    def lexeme(self, machine: Machine) -> Lexeme | None:
        bracket = 0x7D if isinstance(self.frame, ObjectFrame) else 0x5D
        return after_lexeme(bracket, self.frame.layout)

    def live(self) -> int | None:
        may_go_on, may_close = self.frame.choices()
        return may_go_on << COMMA | may_close << CLOSE

    def after(self, machine: Machine, label: int, text: bytes | None) -> After:
        return self.frame.go_on(machine) if label == COMMA else self.frame.close(machine)


class UndecidedContext(Context):
    """What follows depends on a text that isn't known."""

    __slots__ = ()

    @property
    def key(self) -> Hashable:
        return "undecided"

    def lexeme(self, machine: Machine) -> Lexeme | None:
        return None

    def after(self, machine: Machine, label: int, text: bytes | None) -> After:
        raise AssertionError("nothing is read in an undecided context")


# -- objects ------------------------------------------------------------------------------------


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

    def lexeme(self, machine: Machine) -> Lexeme | None:
        frame = self.frame
        layout = frame.layout
        return frame.names.keyed(layout.before_item(), layout.empty_close() if self.first else None)

    def live(self) -> int | None:
        live = self.frame.live()
        return live if self.first else live & ~(1 << CLOSE_OBJECT)

    def after(self, machine: Machine, label: int, text: bytes | None) -> After:
        if label == CLOSE_OBJECT:
            return self.frame.close(machine)
        if self.frame.is_undecided and label < self.frame.plan.first_name:
            return machine.intern(UndecidedContext())
        name = None if text is None else json.loads(text[: text.rindex(b'"') + 1])
        return self.frame.property(machine, label, name)


class ObjectFrame(Frame):
    """An open object, between two properties or (``label`` is set) in a property's value.

    Attributes:
        values: the value plans of the schema.
        plan, goals: what is followed, and which verdicts on it are acceptable.
        residual: what is left of the plan's formulas.
        seen: the labels of the properties that are there, as bits.
        count: how many properties there are, as far as that matters.
        used: by class, how many of its names are there, where it has finitely many.
        names: the lexeme of the names that may come.
        names_id: the machine's number for ``names``.
        is_undecided: one more name is not to come again, but isn't known.
        floor: names with labels below it can't come any more (if the order is fixed).
        content: the properties' names and values, if they are recorded.
    """

    __slots__ = (
        "_live", "child", "content", "count", "floor", "goals", "is_recording", "is_undecided",
        "label", "names", "names_id", "parent", "plan", "residual", "seen", "used", "values",
    )  # fmt: skip

    def __init__(
        self,
        machine: Machine,
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
        self.id = machine.number(
            (
                "object", plan, goals, residual, seen, count, used, names_id, is_undecided,
                floor, content, label, parent.id,
            )
        )  # fmt: skip

    @classmethod
    def opened(cls, machine: Machine, value_plan: ValuePlan, parent: Frame) -> Context:
        """The context after an opening brace."""
        values = value_plan.values
        plan = values.solver.object_plan(value_plan.formulas("object"))
        layout = parent.layout.deeper()
        names = values.names(plan, layout)
        frame = cls(
            machine, values, plan, value_plan.verdicts, parent, layout, names,
            machine.number(names.key), plan.formulas, 0, 0, (0,) * len(plan.classes), 0, 0, None,
            () if parent.records else None, is_undecided=False,
        )  # fmt: skip
        return machine.intern(KeyContext(frame, first=True))

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

    def property(self, machine: Machine, label: int, name: str | None) -> After:
        """The context of the value of a property with this label."""
        plan = self.plan
        child = plan.child(self.residual, label)
        names, names_id, used = self.names, self.names_id, self.used
        is_undecided = self.is_undecided
        if label < plan.first_name:
            if name is None:
                is_undecided = True
            else:
                names = excluding(machine.lexicon, names, name)
                names_id = machine.number(names.key)
            if plan.classes[label - 1].size is not None:
                used = tuple(n + (i + 1 == label) for i, n in enumerate(used))
        content = self.content
        if self.is_recording and content is not None:
            if label >= plan.first_name:
                name = plan.names[label - plan.first_name]
            content = (*content, name)  # type: ignore[misc]
        frame = ObjectFrame(
            machine, self.values, plan, self.goals, self.parent, self.layout, names, names_id,
            self.residual, self.seen, self.count, used, self.floor, label, child, content,
            is_undecided,
        )  # fmt: skip
        value_plan = self.values.plan(child.nodes, frame.accepts)
        prefixes = self.layout.after_colon()
        if len(child.nodes) == 1 and not self.records:
            return _pushed(machine, value_plan, frame, prefixes)
        return machine.intern(ValueContext(value_plan, frame, prefixes))

    def child_done(self, machine: Machine, verdict: Verdict, value: Hashable) -> After:
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
                content = UNKNOWN
            else:
                content = (*content[:-1], (content[-1], value))
        floor = self.floor
        if not self.values.any_order:
            floor = plan.floor_after(self.label, floor)
        frame = ObjectFrame(
            machine, self.values, plan, self.goals, self.parent, self.layout, self.names,
            self.names_id, residual, seen, min(self.count + 1, plan.max_count), self.used, floor, 0,
            None, content, self.is_undecided,
        )  # fmt: skip
        return machine.intern(AfterContext(frame))

    def go_on(self, machine: Machine) -> Context:
        """The context after a comma."""
        if self.is_undecided and not self.plan.never_runs_out:
            return machine.intern(UndecidedContext())
        return machine.intern(KeyContext(self, first=False))

    def close(self, machine: Machine) -> After:
        """The context after the closing brace."""
        verdict = self.verdict()
        if verdict not in self.goals:
            return None
        value: Hashable = None
        if self.is_recording:
            value = UNKNOWN
            if isinstance(self.content, tuple) and self.content != UNKNOWN:
                value = ("object", frozenset(self.content))
        return self.parent.child_done(machine, verdict, value)

    def verdict(self) -> Verdict:
        """The verdicts if the object ends here."""
        return tuple(self.plan.holds_now(f, self.seen, self.count) for f in self.residual[1:])


# -- arrays -------------------------------------------------------------------------------------


class ArrayFrame(Frame):
    """An open array, between two items or (``child`` is set) in an item.

    Attributes:
        values, plan, goals: as in an ``ObjectFrame``.
        state: the plan's state.
        content: the items' values, if they are recorded.
    """

    __slots__ = (
        "_next", "child", "content", "goals", "is_recording", "parent", "plan", "state", "values",
    )  # fmt: skip

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
        machine: Machine,
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
        self.id = machine.number(("array", plan, goals, state, content, nodes, parent.id))

    @classmethod
    def opened(cls, machine: Machine, value_plan: ValuePlan, parent: Frame) -> After:
        """The context after an opening bracket."""
        values = value_plan.values
        plan = values.solver.array_plan(value_plan.formulas("array"))
        frame = cls(
            machine, values, plan, value_plan.verdicts, plan.start,
            () if parent.records else None, None, parent, parent.layout.deeper(),
        )  # fmt: skip
        may_go_on, may_close = frame.choices()
        if not may_go_on:
            nothing = values.plan((FALSE,), lambda _: True)
            return machine.intern(
                ValueContext(nothing, frame, frame.layout.before_item(), may_close=True)
            )
        return frame._item(machine, may_close=may_close)

    def _with(
        self, machine: Machine, state: State, content: Hashable, child: Child | None
    ) -> ArrayFrame:
        return ArrayFrame(
            machine, self.values, self.plan, self.goals, state, content, child, self.parent,
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

    def _item(self, machine: Machine, *, may_close: bool) -> After:
        is_known = UNKNOWN not in self.state[3]
        child = self.next_child() if is_known else self.plan.child(self.state)
        frame = self._with(machine, self.state, self.content, child)
        plan = self.values.plan(child.nodes, frame.accepts)
        if len(child.nodes) == 1 and not self.records:
            return _pushed(machine, plan, frame, self.layout.before_item(), may_close=may_close)
        return machine.intern(
            ValueContext(
                plan, frame, self.layout.before_item(), may_close=may_close, is_known=is_known
            )
        )

    def child_done(self, machine: Machine, verdict: Verdict, value: Hashable) -> After:
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
            return machine.intern(UndecidedContext())
        return machine.intern(AfterContext(self._with(machine, state, content, None)))

    def _never_depends(self, state: State) -> bool:
        """Whether what follows is the same whatever the items in ``state`` are."""
        plan = self.plan
        return plan.never_depends(state) and self.values.never_runs_out(plan.child(state).nodes)

    def go_on(self, machine: Machine) -> After:
        """The context after a comma."""
        return self._item(machine, may_close=False)

    def close(self, machine: Machine) -> After:
        """The context after the closing bracket."""
        verdict = self.verdict()
        if verdict not in self.goals:
            return None
        value: Hashable = None
        if self.is_recording:
            value = UNKNOWN if self.content == UNKNOWN else ("array", self.content)
        return self.parent.child_done(machine, verdict, value)

    def verdict(self) -> Verdict:
        """The verdicts if the array ends here."""
        return tuple(self.plan.holds_now(f, self.state) for f in self.state[0][1:])

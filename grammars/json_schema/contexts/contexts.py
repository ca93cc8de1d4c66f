"""The contexts of a JSON text.

Frames and contexts are immutable: a step makes new ones, which share their parents, and a pushdown
table interns contexts, so that equal states share transitions. A text passes through them like
this::

    Top ─ ValueContext ─{─ KeyContext ─"key":─ ValueContext ─ AfterContext ─,─ KeyContext
                       ─[─ ValueContext ─────────────────────  AfterContext ─,─ ValueContext

Most objects and arrays need no frames of their own (``plain.py``); those that do are in
``object_frames.py`` and ``array_frames.py``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from ramet.grammars.json_schema.schema.layout import Layout
from ramet.grammars.json_schema.schema.values import parse_scalar
from ramet.grammars.json_schema.solver.frames import UNKNOWN, Frame, OpenFrame, Top
from ramet.grammars.json_schema.text.lexemes import ARRAY, CLOSE, CLOSE_ARRAY, COMMA, OBJECT
from ramet.grammars.pushdown.automaton import NOTHING
from ramet.grammars.pushdown.context_table import After, Context, ContextTable, Pop, Push
from ramet.grammars.pushdown.state_table import Lexeme, StateTable
from ramet.grammars.pushdown.tables import LOCAL, PLAIN, UNDECIDED, UNSURE

from .after_lexeme import after_lexeme
from .values_plan import ValuePlan, Verdict


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
    def kind(self) -> int:  # type: ignore[override]
        return LOCAL if isinstance(self.frame, LocalFrame) else PLAIN

    @property
    def captures(self) -> bool:  # type: ignore[override]
        return self.frame.records

    @property
    def key(self) -> Hashable:
        return (
            "value", self.plan, self.frame.id, self.prefixes, self.may_close, self._is_known,
        )  # fmt: skip

    def lexeme(self, pushdown: ContextTable) -> Lexeme | None:
        frame = self.frame
        close = frame.layout.empty_close() if self.may_close else None
        own = frame.value_lexeme(pushdown, self.plan, self.prefixes, close)
        if own is not None:
            return own
        return self.plan.parts.lexeme(self.prefixes, close, is_recorded=self.frame.records)

    def likely(self) -> Iterable[int]:
        if self.frame.records:
            return ()
        brackets = self.plan.parts.brackets
        if self.kind == LOCAL:
            return brackets
        return (*brackets, *self.plan.scalar_labels)

    def after(self, pushdown: ContextTable, label: int, text: bytes | None) -> After:
        frame = self.frame
        if not self._is_known:
            return pushdown.intern(UndecidedContext())
        if label in (OBJECT, ARRAY):
            return self.plan.values.opened(
                pushdown, self.plan, frame, lambda: self._outer(pushdown), is_object=label == OBJECT
            )
        if label == CLOSE_ARRAY:
            assert isinstance(frame, OpenFrame)
            return frame.close(pushdown)
        value: Hashable = None
        if frame.records:
            value = UNKNOWN if text is None else parse_scalar(text)
        return frame.child_done(pushdown, self.plan.verdict_of(label), value)

    def _outer(self, pushdown: ContextTable) -> Context | None:
        """The context that a nested value is pushed onto; None: the one below this value."""
        if isinstance(self.frame, LocalFrame):
            return None
        return pushdown.intern(ReturnContext(self.frame))


class ReturnContext(Context):
    """The context below a pushed value: by ``DONE`` the value has ended; by ``CLOSED`` the array's
    closing bracket came in place of its first item."""

    __slots__ = ("frame",)
    DONE, CLOSED = range(2)

    def __init__(self, frame: Frame) -> None:
        self.frame = frame

    @property
    def key(self) -> Hashable:
        return ("return", self.frame.id)

    def lexeme(self, pushdown: ContextTable) -> Lexeme | None:
        return NOTHING

    def likely(self) -> Iterable[int]:
        frame = self.frame
        if isinstance(frame, OpenFrame):
            is_told_nothing = frame.child is not None and len(frame.child.nodes) == 1
            return (self.DONE,) if is_told_nothing and not frame.records else ()
        return (self.DONE,) if isinstance(frame, Top) else ()

    def after(self, pushdown: ContextTable, label: int, text: bytes | None) -> After:
        if label == self.DONE:
            return self.frame.child_done(pushdown, (), None)
        assert isinstance(self.frame, OpenFrame)
        return self.frame.close(pushdown)


class LocalFrame(Frame):
    """A placeholder for the context below a pushed value, where the value doesn't depend on it."""

    __slots__ = ()

    def __init__(self, pushdown: ContextTable, layout: Layout) -> None:
        self.id = pushdown.number(("local", layout))
        self.layout = layout
        self.records = False

    def accepts(self, verdict: Verdict) -> bool:
        return True

    def child_done(self, pushdown: ContextTable, verdict: Verdict, value: Hashable) -> After:
        return Pop(ReturnContext.DONE)


def pushed(
    pushdown: ContextTable,
    plan: ValuePlan,
    frame: OpenFrame,
    prefixes: tuple[bytes, ...],
    *,
    may_close: bool = False,
) -> Push:
    """A value of which the frame around it needs to know only that it has ended."""
    inner = local_value(pushdown, plan, frame.layout, prefixes, may_close=may_close)
    return Push(inner, pushdown.intern(ReturnContext(frame)))


def local_value(
    pushdown: ContextTable,
    plan: ValuePlan,
    layout: Layout,
    prefixes: tuple[bytes, ...],
    *,
    may_close: bool = False,
) -> Context:
    """A value that pops when it has ended."""
    local = LocalFrame(pushdown, layout)
    return pushdown.intern(ValueContext(plan, local, prefixes, may_close=may_close))


class AfterContext(Context):
    """A comma or a closing bracket comes next."""

    __slots__ = ("frame",)

    def __init__(self, frame: OpenFrame) -> None:
        self.frame = frame

    @property
    def key(self) -> Hashable:
        return ("after", self.frame.id)

    def lexeme(self, pushdown: ContextTable) -> Lexeme | None:
        return after_lexeme(self.frame.bracket, self.frame.layout)

    def live(self) -> int | None:
        may_go_on, may_close = self.frame.choices()
        return may_go_on << COMMA | may_close << CLOSE

    def likely(self) -> Iterable[int]:
        may_go_on, may_close = self.frame.choices()
        if not self.frame.records:
            if may_go_on:
                yield COMMA
            if may_close:
                yield CLOSE

    def completing_labels(self) -> list[int]:
        _, may_close = self.frame.choices()
        return [CLOSE if may_close else COMMA]

    def after(self, pushdown: ContextTable, label: int, text: bytes | None) -> After:
        return self.frame.go_on(pushdown) if label == COMMA else self.frame.close(pushdown)


class UndecidedContext(Context):
    """What follows depends on an unknown text; ``lexeme``, if given, allows all of it."""

    __slots__ = ("_lexeme",)
    kind = UNDECIDED

    def __init__(self, lexeme: Lexeme | None = None) -> None:
        self._lexeme = lexeme

    @property
    def key(self) -> Hashable:
        return ("undecided", self._lexeme and self._lexeme.key)

    def lexeme(self, pushdown: ContextTable) -> Lexeme | None:
        return self._lexeme

    def after(self, pushdown: ContextTable, label: int, text: bytes | None) -> After:
        raise AssertionError("nothing is read in an undecided context")


def undecided_after(frame: OpenFrame) -> Context:
    """A comma or a closing bracket comes next; which of them depends on a text."""
    return UndecidedContext(after_lexeme(frame.bracket, frame.layout))


class _UnsureLexeme(Lexeme):
    key = "unsure"

    def install(self, state_table: StateTable) -> int:
        return UNSURE


_UNSURE_LEXEME = _UnsureLexeme()


class UnsureContext(Context):
    """Further text follows; which text is allowed depends on an unknown text."""

    __slots__ = ()

    @property
    def key(self) -> Hashable:
        return "unsure"

    def lexeme(self, pushdown: ContextTable) -> Lexeme | None:
        return _UNSURE_LEXEME

    def after(self, pushdown: ContextTable, label: int, text: bytes | None) -> After:
        raise AssertionError("nothing is read in an unsure context")

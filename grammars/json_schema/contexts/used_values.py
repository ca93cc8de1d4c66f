"""The values that an array with ``uniqueItems`` must not repeat."""

from __future__ import annotations

from collections.abc import Hashable

from ramet.grammars.json_schema.schema.atoms import Const
from ramet.grammars.json_schema.schema.formula import Formula, all_of, atom, negate
from ramet.grammars.json_schema.solver.frames import UNKNOWN
from ramet.grammars.json_schema.solver.values_of import values_of
from ramet.grammars.json_schema.text.excluded_values import without_number, without_text
from ramet.grammars.json_schema.text.lexemes import CLOSE_ARRAY, FIRST_SCALAR, ItemLexeme, has_text
from ramet.grammars.pushdown.context_table import ContextTable
from ramet.grammars.pushdown.lexemes import DfaLexeme
from ramet.grammars.pushdown.state_table import Lexeme, StateTable
from ramet.grammars.regular import regex_dfa
from ramet.grammars.regular.numbers import plain_integers, spellings

from .value_parts import text_lexeme
from .values_plan import ValuePlan, Values

_FRACTION = r"-?(0|[1-9][0-9]{0,3})\.[0-9]{2}[1-9]"
"""Number texts of which no two are equal."""


class Items:
    """The values that an array's items may have, before any is excluded.

    Attributes:
        listed: the values, if they are few.
        at_least: a lower bound on the number of values; None: infinitely many.
        never_runs_out: every prefix of a value begins infinitely many of them.
    """

    def __init__(self, values: Values, node: Formula) -> None:
        self.values = values
        self.node = node
        self.plan = values.plan((node,), lambda _: True)
        self.listed = values_of(values.solver, node)
        self.never_runs_out = values.never_runs_out((node,))
        self.at_least: int | None = 0
        if self.listed is None:
            self.at_least = self._num_values()
        self._text: Lexeme | None = None
        self._number: Lexeme | None = None

    def _num_values(self) -> int | None:
        texts = self.values.texts(self.node)
        if not texts.is_empty and texts.size is None and not texts.is_counted:
            return None
        found = texts.size or 0
        number = self.plan.parts.number
        if isinstance(number, DfaLexeme):
            for few in (plain_integers(), regex_dfa(_FRACTION)):
                members = number.dfa.intersect(few).num_members
                if members is None:
                    return None
                found += members
            found -= number.dfa.accepts(b"0") and number.dfa.accepts(b"-0")
        return found

    def text(self) -> Lexeme | None:
        """The strings, with few spellings each."""
        if self._text is None and self.plan.parts.text is not None:
            self._text = text_lexeme(
                [(FIRST_SCALAR, self.values.texts(self.node))],
                self.values.solver.languages,
                has_one_spelling=True,
            )
        return self._text

    def number(self) -> Lexeme | None:
        """The numbers, in texts of which those that are equal to one have an automaton."""
        number = self.plan.parts.number
        if self._number is None and number is not None:
            is_any = self.values.solver.typer.typed(self.node, "number").op == "true"
            if is_any and isinstance(number, DfaLexeme):
                number = DfaLexeme(number.dfa.intersect(spellings()), FIRST_SCALAR)
            self._number = number
        return self._number

    def without(self, nested: tuple[Hashable, ...]) -> ValuePlan:
        """The plan of an item that is none of some arrays and objects."""
        if not nested:
            return self.plan
        left = all_of([self.node, *(negate(atom(Const(v))) for v in nested)])
        return self.values.plan((left,), lambda _: True)


class UsedValues:
    """An array's values so far: a chain, of which each link adds one.

    Attributes:
        id: the pushdown table's number for it.
        count: how many there are.
        is_known: none of them has a text that isn't known.
    """

    __slots__ = (
        "_num_listed",
        "_number",
        "_plan",
        "_text",
        "count",
        "id",
        "is_known",
        "items",
        "literals",
        "nested",
        "parent",
        "value",
    )  # fmt: skip

    def __init__(
        self, pushdown: ContextTable, items: Items, parent: UsedValues | None, value: Hashable
    ):
        self.items = items
        self.parent = parent
        self.value = value
        self._text: Lexeme | None = None
        self._number: Lexeme | None = None
        self._plan: ValuePlan | None = None
        if parent is None:
            self.id = pushdown.number(("used", items.node))
            self.count = self._num_listed = 0
            self.is_known = True
            self.literals = items.plan.parts.literals
            self.nested: tuple[Hashable, ...] = ()
            return
        self.id = pushdown.number(("used", parent.id, value))
        self.count = parent.count + 1
        self.is_known = parent.is_known and value != UNKNOWN
        self._num_listed = parent._num_listed
        if items.listed is not None and value in items.listed:
            self._num_listed += 1
        self.literals, self.nested = parent.literals, parent.nested
        kind = self.kind
        if kind in ("array", "object"):
            self.nested = (*self.nested, value)
        elif kind in self.literals:
            self.literals = {k: label for k, label in self.literals.items() if k != kind}

    @property
    def kind(self) -> str:
        """The kind of the latest value."""
        return str(self.value[0]) if isinstance(self.value, tuple) else ""

    def plan(self) -> ValuePlan:
        """The plan of the next item, except for the used scalars."""
        if self._plan is None:
            parent = self.parent
            same = parent is not None and parent.nested is self.nested
            self._plan = parent.plan() if same and parent else self.items.without(self.nested)
        return self._plan

    def lexeme(
        self,
        pushdown: ContextTable,
        prefixes: tuple[bytes, ...],
        close_prefixes: tuple[bytes, ...] | None,
    ) -> Lexeme:
        """The lexeme of the next item; see ``ValueParts.lexeme``."""
        parts = self.plan().parts
        if self.count == 0:
            return parts.lexeme(prefixes, close_prefixes, is_recorded=True)
        brackets = parts.brackets
        if close_prefixes is not None:
            brackets |= {CLOSE_ARRAY}
        text = None if parts.text is None else self.text
        number = None if parts.number is None else self.number
        return ItemLexeme(
            (pushdown.token, self.id), text, number, self.literals, brackets, prefixes,
            close_prefixes or (),
        )  # fmt: skip

    def text(self, state_table: StateTable) -> Lexeme:
        """The strings that are left."""
        links = [self]
        while links[-1]._text is None and links[-1].parent is not None:
            links.append(links[-1].parent)
        for link in reversed(links):
            if link._text is not None:
                continue
            first = self.items.text()
            assert first is not None
            base = first if link.parent is None else link.parent._text
            assert base is not None
            if link.kind == "string":
                assert isinstance(link.value, tuple)
                base = without_text(state_table, base, first, link.value[1])
            link._text = base
        assert self._text is not None
        return self._text

    def number(self, state_table: StateTable) -> Lexeme:
        """The numbers that are left."""
        links = [self]
        while links[-1]._number is None and links[-1].parent is not None:
            links.append(links[-1].parent)
        for link in reversed(links):
            if link._number is not None:
                continue
            base = self.items.number() if link.parent is None else link.parent._number
            assert base is not None
            if link.kind == "number":
                assert isinstance(link.value, tuple)
                base = without_number(state_table, base, link.value[1])
            link._number = base
        assert self._number is not None
        return self._number

    @property
    def can_spare_one(self) -> bool:
        """Whether there are further values after any next one."""
        at_least = self.items.at_least
        return at_least is None or self.count + 1 < at_least

    def has_more(self, pushdown: ContextTable) -> bool:
        """Whether there is a value that isn't used."""
        if self.items.listed is not None:
            return self._num_listed < len(self.items.listed)
        at_least = self.items.at_least
        if at_least is None or self.count < at_least or not self.is_known:
            return True
        if self.literals or self.plan().parts.brackets:
            return True
        state_table = pushdown.state_table
        with state_table.lock:
            return has_text(state_table, state_table.install(self.lexeme(pushdown, (b"",), None)))

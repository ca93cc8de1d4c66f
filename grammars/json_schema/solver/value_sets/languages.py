"""The regular languages of scalars: which strings and which numbers a typed formula allows."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from ramet.grammars.errors import GrammarTooComplexError
from ramet.grammars.json_schema.schema.atoms import (
    AtLeast,
    AtMost,
    Format,
    Pattern,
    TextIs,
    TextLength,
)
from ramet.grammars.json_schema.schema.formula import (
    Formula,
    all_of,
    atom,
    conjuncts,
    truth_of,
)
from ramet.grammars.json_schema.schema.number_form import (
    INT64_HIGH,
    INT64_LOW,
    NumberForm,
    is_beyond_int64,
    max_digits,
)
from ramet.grammars.json_schema.schema.number_sets import (
    Regions,
    is_order_or_integer,
    listed_numbers,
    must_be_integer,
)
from ramet.grammars.pushdown.json_text import key_body
from ramet.grammars.regular import (
    EMPTY,
    Dfa,
    any_text,
    characters,
    intersect_all,
    literals,
    regex_dfa,
    repeat,
    union_all,
)  # fmt: skip
from ramet.grammars.regular import numbers as number_languages
from ramet.grammars.regular.formats import string_format
from ramet.grammars.regular.regex import node_dfa
from ramet.grammars.regular.regex.counted import without_bounds
from ramet.grammars.regular.regex.parser import parse
from ramet.grammars.regular.regex.syntax import Node

from .character_dfa import CharacterDfa
from .number_dfa import exactly_one, number_dfa
from .number_search import NumberSearch, has_many_remainders
from .remembered import Remembered
from .text_sets import TextSet, members

_MAX_COUNTED = 4096
_MAX_PRODUCT = 4000
_MAX_LISTED = 64
_MANY = 10**6
"""With so few numbers left, an array of different ones could run out of them."""

_ANY_FORM = NumberForm()
_INT64 = all_of([atom(AtLeast(INT64_LOW, False)), atom(AtMost(INT64_HIGH, False))])


@dataclass(frozen=True, slots=True)
class _Unbounded:
    """The string is of a format, its bound on the length aside."""

    name: str


class Languages(Remembered):
    """Languages by formula, remembered up to a bound; may serve many compilations."""

    # -- strings ----------------------------------------------------------------------------

    def has_text(self, formula: Formula, text: str) -> bool:
        """Whether a typed formula over strings allows ``text``."""
        return truth_of(formula, lambda a: self._text_atom(a, text))

    def _text_atom(self, value: Hashable, text: str) -> bool:
        if isinstance(value, TextIs):
            return text in value.values
        if isinstance(value, TextLength):
            return value.low <= len(text) and (value.high is None or len(text) <= value.high)
        if isinstance(value, Format):
            found = string_format(value.name)
            assert found is not None
            short = found.max_length is None or len(text) <= found.max_length
            return short and found.dfa.accepts(text.encode())
        assert isinstance(value, Pattern)
        return self.pattern(value).accepts(text.encode())

    def pattern(self, pattern: Pattern) -> Dfa:
        """The strings with a match of an ECMA-262 pattern."""
        text, limits = pattern.pattern, self.limits.regular

        def make() -> Dfa:
            counted = self.counted_pattern(text) if pattern.unbounded else None
            if counted is not None:
                return node_dfa(counted[0], limits)
            return regex_dfa(text, dialect="ecma", search=True, limits=limits)

        description = f"{'unbounded' if pattern.unbounded else 'search'} {text}"
        return self.remember(pattern, lambda: self.stored(description, make))

    def counted_pattern(self, pattern: str) -> tuple[Node, int, int | None] | None:
        """A pattern that counts characters, without its bounds, and those; None if it doesn't."""
        return self.remember(
            ("counted pattern", pattern), lambda: without_bounds(parse(pattern, "ecma"))
        )

    def _body(self, dfa: Dfa) -> Dfa:
        """The spellings of a language of strings."""
        return self.remember(
            ("body", dfa.digest),
            lambda: self.stored(
                f"body {dfa.digest.hex()}", lambda: key_body(dfa, self.limits.regular)
            ),
        )

    def few_members(self, pattern: str) -> frozenset[str] | None:
        """The strings with a match of a pattern; None unless they are few, and plainly so."""
        dfa = self.pattern(Pattern(pattern))
        if dfa.num_states > _MAX_LISTED:
            return None

        def find() -> frozenset[str] | None:
            size = dfa.num_members
            return frozenset(members(dfa)) if size is not None and size <= _MAX_LISTED else None

        return self.remember(("few", pattern), find)

    def texts(self, formula: Formula) -> TextSet:
        """The strings that a typed formula allows."""
        return self.remember(("texts", formula), lambda: self._texts(formula))

    def _texts(self, formula: Formula) -> TextSet:
        if formula.op == "false":
            return TextSet(frozenset())
        parts = conjuncts(formula)
        listed = [p.parts[0] for p in parts if p.op == "atom" and isinstance(p.parts[0], TextIs)]
        if listed:
            texts = frozenset.intersection(*(t.values for t in listed))
            rest = [p for p in parts if not (p.op == "atom" and isinstance(p.parts[0], TextIs))]
            if rest:
                texts = frozenset(t for t in texts if all(self.has_text(p, t) for p in rest))
            return TextSet(texts)
        low, high = 0, None
        excluded: set[str] = set()
        for part in parts:
            value = part.parts[0] if part.op == "atom" else None
            if isinstance(value, TextLength):
                low = max(low, value.low)
                if value.high is not None:
                    high = value.high if high is None else min(high, value.high)
            elif part.op == "not" and part.operands[0].op == "atom":
                value = part.operands[0].parts[0]
                if not isinstance(value, TextIs):
                    break
                excluded |= value.values
            else:
                break
        else:
            if high is not None and low > high:
                return TextSet(frozenset())
            within = frozenset(
                t for t in excluded if low <= len(t) and (high is None or len(t) <= high)
            )
            return TextSet(within, others=True, low=low, high=high)
        if formula.op == "any":
            unions = [self.texts(p) for p in formula.operands]
            if all(not u.others for u in unions):
                return TextSet(frozenset().union(*(u.texts for u in unions)))
        return self._counted_set(parts) or TextSet(
            frozenset(), others=True, base=self.text_dfa(formula)
        )

    def _counted_set(self, parts: tuple[Formula, ...]) -> TextSet | None:
        """Conditions with bounds on the length, where their one automaton would be large."""
        low, high = 0, None
        rest: list[Formula] = []
        for part in parts:
            value = part.parts[0] if part.op == "atom" else None
            bounds: tuple[int, int | None] | None = None
            if isinstance(value, TextLength):
                bounds = value.low, value.high
            elif isinstance(value, Format):
                found = string_format(value.name)
                if found is not None and found.max_length is not None:
                    bounds = 0, found.max_length
                    rest.append(atom(_Unbounded(value.name)))
            else:
                rest.append(part)
                continue
            if bounds is None:
                rest.append(part)
            else:
                low = max(low, bounds[0])
                if bounds[1] is not None:
                    high = bounds[1] if high is None else min(high, bounds[1])
        if low == 0 and high is None:
            return None
        dfa = self.text_dfa(all_of(rest))
        if dfa.is_empty or (high is not None and low > high):
            return TextSet(frozenset())
        body = self._body(dfa)
        automaton = self.characters(body)
        lengths = automaton.within(low, high)
        if not lengths[0]:
            return TextSet(frozenset())
        longest = automaton.longest()
        if automaton.shortest[0] >= low:
            low = 0
        if longest is not None and high is not None and longest <= high:
            high = None
        if low == 0 and high is None:
            return TextSet(frozenset(), others=True, base=dfa)
        if dfa.num_states * max(low, high or 0) <= _MAX_PRODUCT:
            return None
        return TextSet(frozenset(), others=True, base=dfa, low=low, high=high)

    def characters(self, body: Dfa) -> CharacterDfa:
        """A body's automaton with the borders of characters."""
        return self.remember(("characters", body.digest), lambda: CharacterDfa(body))

    def text_dfa(self, formula: Formula) -> Dfa:
        """The strings that a typed formula allows, as an automaton over UTF-8."""
        return self.remember(("text dfa", formula), lambda: self._text_dfa(formula))

    def _text_dfa(self, formula: Formula) -> Dfa:
        limits = self.limits.regular
        if formula.op == "true":
            return any_text()
        if formula.op == "false":
            return EMPTY
        if formula.op == "atom":
            return self._text_atom_dfa(formula.parts[0])
        parts = formula.operands
        if formula.op == "not":
            return self.text_dfa(parts[0]).complement(limits)
        if formula.op == "any":
            return union_all([self.text_dfa(p) for p in parts], limits)
        if formula.op == "all":
            # Part by part, as formulas grow: what they begin with is known already.
            result = self.text_dfa(all_of(parts[:-1]))
            if parts[-1].op == "not":
                return result.difference(self.text_dfa(parts[-1].operands[0]), limits)
            return result.intersect(self.text_dfa(parts[-1]), limits)
        return exactly_one([self.text_dfa(p) for p in parts], any_text(), limits)

    def _text_atom_dfa(self, value: Hashable) -> Dfa:
        limits = self.limits.regular
        if isinstance(value, TextIs):
            return literals(sorted(value.values), limits)
        if isinstance(value, Pattern):
            return self.pattern(value)
        if isinstance(value, Format):
            found = string_format(value.name)
            assert found is not None
            if found.max_length is None:
                return found.dfa
            return found.dfa.intersect(self._counted(0, found.max_length), limits)
        if isinstance(value, _Unbounded):
            found = string_format(value.name)
            assert found is not None
            return found.dfa
        assert isinstance(value, TextLength)
        return self._counted(value.low, value.high)

    def _counted(self, low: int, high: int | None) -> Dfa:
        if max(low, high or 0) > _MAX_COUNTED:
            raise GrammarTooComplexError(
                "", "maxLength", f"a length over {_MAX_COUNTED} is combined with other conditions"
            )
        return repeat(characters(((0, 0xD7FF), (0xE000, 0x10FFFF))), low, high, self.limits.regular)

    def body(self, texts: TextSet, *, counted: bool = True) -> Dfa:
        """The spellings of a set of strings; without ``counted`` its bounds are left out."""
        dfa = self.set_dfa(texts) if counted or texts.base is None else texts.base
        return self._body(dfa)

    def prepare_text(self, formula: Formula) -> None:
        """Compute in advance what a lexeme of these strings will need."""
        texts = self.texts(formula)
        if texts.others and texts.base is not None:
            if texts.is_counted:
                self.characters(self.body(texts, counted=False))
            else:
                self.body(texts)

    def set_dfa(self, texts: TextSet) -> Dfa:
        """A set of strings as an automaton over UTF-8."""
        if not texts.others:
            return literals(sorted(texts.texts), self.limits.regular)
        low, high = texts.low, texts.high
        if texts.base is not None:
            if not texts.is_counted:
                return texts.base
            return texts.base.intersect(self._counted(low, high), self.limits.regular)
        if high is not None and low > high:
            return EMPTY
        base = any_text() if (low, high) == (0, None) else self._counted(low, high)
        if not texts.texts:
            return base
        return base.difference(literals(sorted(texts.texts), self.limits.regular))

    # -- numbers ----------------------------------------------------------------------------

    def numbers(self, formula: Formula, form: NumberForm = _ANY_FORM) -> Dfa:
        """The number texts that a typed formula over numbers allows."""
        if form.digits == "bounded":
            return self.remember(
                ("bounded numbers", formula, form.integers),
                lambda: self._bounded_numbers(formula, form),
            )
        if form.integers == "plain" and must_be_integer(formula):
            return self.remember(("plain numbers", formula), lambda: self._plain_numbers(formula))
        return self.remember(("numbers", formula), lambda: self._numbers(formula))

    def _bounded_numbers(self, formula: Formula, form: NumberForm) -> Dfa:
        """Those of the numbers that have few digits; all of them if few have."""
        any_form = form._replace(digits="any")
        numbers = self.numbers(formula, any_form)
        if numbers.num_members is not None:
            return numbers
        within = numbers
        if form.integers == "plain" and must_be_integer(formula) and not is_beyond_int64(formula):
            within = self.numbers(all_of([formula, _INT64]), any_form)
        short = number_languages.short_numbers(*max_digits(formula))
        bounded = intersect_all([within, short], self.limits.regular)
        values = intersect_all([numbers, number_languages.one_spelling()], self.limits.regular)
        if values.num_members is not None:
            has_all = values.difference(bounded, self.limits.regular).is_empty
            return bounded if has_all else numbers
        size = bounded.num_members
        return bounded if size is not None and size >= _MANY else numbers

    def _plain_numbers(self, formula: Formula) -> Dfa:
        numbers = self.numbers(formula)
        plain = intersect_all([numbers, number_languages.plain_integers()])
        return numbers if plain.is_empty else plain  # too long for digits alone

    def _numbers(self, formula: Formula) -> Dfa:
        if formula.op == "true":
            return number_languages.any_number()
        values = listed_numbers(formula)
        if values is not None:
            return number_languages.equal_to_any(values)
        try:
            return number_dfa(formula, self.limits.regular, exponents=True)
        except GrammarTooComplexError:
            return number_dfa(formula, self.limits.regular, exponents=False)

    def number_set(self, formula: Formula, form: NumberForm = _ANY_FORM) -> Dfa | NumberSearch:
        """The number texts that a typed formula allows, or, where their automaton would be too
        large, a search for such numbers."""
        try:
            if not has_many_remainders(formula):
                return self.numbers(formula, form)
        except GrammarTooComplexError:
            pass
        return self.remember(("search", formula), lambda: NumberSearch(formula))

    def has_numbers(self, formula: Formula) -> bool:
        """Whether there is any number that a typed formula allows; cheaper than the automaton."""
        return self.remember(("has numbers", formula), lambda: self._has_numbers(formula))

    def _has_numbers(self, formula: Formula) -> bool:
        values = listed_numbers(formula)
        if values is not None:
            return bool(values)
        if not is_order_or_integer(formula):
            return not self.number_set(formula).is_empty
        regions = Regions((formula,))
        return bool(regions.cells_of(formula) & regions.inhabited)

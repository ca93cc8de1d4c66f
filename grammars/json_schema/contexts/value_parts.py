"""The lexemes of a value's possible forms: its strings, numbers, literals and brackets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ramet.grammars.errors import GrammarTooComplexError
from ramet.grammars.json_schema.schema.atoms import Integer
from ramet.grammars.json_schema.schema.formula import Formula, all_of, atom
from ramet.grammars.json_schema.schema.number_form import NumberForm
from ramet.grammars.json_schema.schema.number_sets import must_be_integer
from ramet.grammars.json_schema.solver.value_sets.languages import Languages
from ramet.grammars.json_schema.solver.value_sets.number_search import NumberSearch
from ramet.grammars.json_schema.solver.value_sets.text_sets import TextSet
from ramet.grammars.json_schema.text.counted_text import CountedText
from ramet.grammars.json_schema.text.lexemes import (
    CLOSE_ARRAY,
    ValueLexeme,
)
from ramet.grammars.json_schema.text.listed_text import ListedText
from ramet.grammars.json_schema.text.literal_text import EXCLUDED, LiteralText
from ramet.grammars.json_schema.text.searched_numbers import SearchedNumbers
from ramet.grammars.json_schema.text.text_lexemes import (
    AnyText,
    BoundedText,
    Closing,
    DfaText,
    FilteredClosing,
    TextLexeme,
)
from ramet.grammars.limits import CompileLimits
from ramet.grammars.pushdown.json_text import KEY_SLICE, VALUE_SLICE
from ramet.grammars.pushdown.labelled_dfa import LabelledDfa
from ramet.grammars.pushdown.lexemes import DfaLexeme, LabelledDfaLexeme
from ramet.grammars.pushdown.state_table import Lexeme
from ramet.grammars.regular import Dfa
from ramet.grammars.regular.numbers import any_number, short_number

_VALUE_CLOSING = Closing()
_MAX_TREE_BYTES = 20_000


class ValueParts:
    """The possible forms of a value.

    Attributes:
        brackets: which of ``OBJECT`` and ``ARRAY`` may be opened.
        text, number, literals: strings and numbers, if any; the labels of null, true and false.
    """

    def __init__(
        self,
        text: TextLexeme | None,
        number: Lexeme | None,
        literals: Mapping[str, int],
        brackets: frozenset[int],
    ) -> None:
        """Strings and numbers, if any; the labels of null, true and false."""
        self.brackets = brackets
        self.text = text
        self.number = number
        self.literals = literals
        self._lexemes: dict[object, Lexeme] = {}

    @property
    def has_scalars(self) -> bool:
        """Whether it may be neither object nor array."""
        return bool(self.text or self.number or self.literals)

    def lexeme(
        self,
        prefixes: tuple[bytes, ...],
        close_prefixes: tuple[bytes, ...] | None,
        *,
        is_recorded: bool = False,
    ) -> Lexeme:
        """The lexeme, with white space before it, and before the array's closing bracket if any.

        A number that is to be recorded has an exponent of at most three digits, so that the
        language of all others has an automaton.
        """
        key = (prefixes, close_prefixes, is_recorded)
        known = self._lexemes.get(key)
        if known is None:
            number = self.number
            if is_recorded and isinstance(number, DfaLexeme) and number.dfa is any_number():
                number = DfaLexeme(short_number(), number.label)
            brackets = self.brackets if close_prefixes is None else self.brackets | {CLOSE_ARRAY}
            known = self._lexemes[key] = ValueLexeme(
                self.text, number, self.literals, brackets, prefixes, close_prefixes or ()
            )
        return known


def text_lexeme(
    parts: Sequence[tuple[int, TextSet]],
    languages: Languages,
    closing: Closing | None = None,
    *,
    has_one_spelling: bool = False,
) -> TextLexeme | None:
    """The lexeme of disjoint sets of strings with their labels.

    Those that must be distinguished have few spellings (``KEY_SLICE``); with ``has_one_spelling``
    all have.
    """
    if not parts:
        return None
    is_key = closing is not None
    labels = {label for label, _ in parts}
    if closing is None:
        closing = _VALUE_CLOSING if len(labels) == 1 else FilteredClosing()
    infinite = [(label, t) for label, t in parts if t.others]
    listed = {text: label for label, t in parts if not t.others for text in t.texts}
    if all(_is_light(t, alone=not listed and not is_key) for _, t in infinite[:2]) and (
        len(infinite) <= 1
    ):
        base: TextLexeme | None = None
        if infinite:
            label, texts = infinite[0]
            listed.update({t: EXCLUDED for t in texts.texts if t not in listed})
            slice_ = KEY_SLICE if listed or is_key or has_one_spelling else VALUE_SLICE
            if texts.low == 0 and texts.high is None:
                base = AnyText(closing, label, slice_)
            else:
                base = BoundedText(closing, label, texts.low, texts.high, slice_)
        if not listed:
            return base
        check_size(listed, languages.limits)
        if base is not None or sum(map(len, listed)) <= _MAX_TREE_BYTES:
            return LiteralText(closing, listed, base)
        return ListedText(closing, listed)
    if len(parts) == 1 and infinite and infinite[0][1].is_counted:
        label, texts = infinite[0]
        body = languages.body(texts, counted=False)
        automaton = languages.characters(body)
        return CountedText(closing, label, automaton, body.digest, texts.low, texts.high)
    bodies = [(label, languages.body(texts)) for label, texts in parts]
    key = tuple((label, body.digest) for label, body in bodies)
    labelled = languages.remember(
        ("labelled", key), lambda: LabelledDfa.of(bodies, languages.limits.regular)
    )
    return DfaText(closing, labelled, key)


def _is_light(texts: TextSet, *, alone: bool) -> bool:
    """Whether an infinite set needs no automaton of its own.

    With an upper bound on the length, leaving out a string can leave a state without a way on.
    """
    if texts.base is not None:
        return False
    return texts.high is None or (alone and not texts.texts)


def check_size(listed: Mapping[str, int], limits: CompileLimits) -> None:
    if sum(map(len, listed)) > limits.max_literal_bytes:
        raise GrammarTooComplexError(
            "", "enum", f"its strings have more than {limits.max_literal_bytes} characters"
        )


def number_lexeme(
    parts: Sequence[tuple[int, Formula, Dfa | NumberSearch]], form: NumberForm
) -> Lexeme | None:
    """The lexeme of disjoint sets of numbers with their labels."""
    if not parts:
        return None
    dfas = [(label, dfa) for label, _, dfa in parts if isinstance(dfa, Dfa)]
    if len(dfas) < len(parts):
        # With ``plain`` a formula that requires an integer is written by digits alone.
        is_plain = form.integers == "plain" and all(
            must_be_integer(formula) for _, formula, _ in parts
        )
        searches = [
            (label, NumberSearch(all_of([formula, atom(Integer())]) if is_plain else formula))
            for label, formula, _ in parts
        ]
        return SearchedNumbers(searches, is_plain=is_plain)
    if len(dfas) == 1:
        return DfaLexeme(dfas[0][1], dfas[0][0])
    key = tuple((label, dfa.digest) for label, dfa in dfas)
    return LabelledDfaLexeme(LabelledDfa.of(dfas), key)

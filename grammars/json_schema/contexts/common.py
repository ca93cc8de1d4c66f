"""Lexemes and automata that most schemas need, computed before the first schema."""

from __future__ import annotations

from typing import Any

from ramet.grammars.json_schema.schema.atoms import Integer
from ramet.grammars.json_schema.schema.formula import TRUE, atom
from ramet.grammars.json_schema.schema.layout import Layout
from ramet.grammars.json_schema.schema.number_form import NumberForm
from ramet.grammars.json_schema.solver.value_sets.languages import Languages
from ramet.grammars.json_schema.text.lexemes import FIRST_SCALAR, AfterLexeme
from ramet.grammars.json_schema.text.text_lexemes import QUOTE, AnyText, Closing, KeyClosing
from ramet.grammars.pushdown.json_text import KEY_SLICE, VALUE_SLICE
from ramet.grammars.pushdown.lexemes import DfaLexeme, LiteralLexeme
from ramet.grammars.pushdown.state_table import StateTable
from ramet.grammars.regular.formats import FORMAT_NAMES

_FORMATS = sorted(FORMAT_NAMES - {"idn-hostname"})

_TYPES = ("string", "number", "integer", "boolean", "null", "object", "array")

COMMON_SCHEMA: dict[str, Any] = {
    "properties": {
        **{name: {"type": name} for name in _TYPES},
        **{name: {"type": "string", "format": name} for name in _FORMATS},
        **{f"integer from {n}": {"type": "integer", "minimum": n} for n in range(2)},
        **{f"number from {n}": {"type": "number", "minimum": n} for n in range(2)},
    }
}
"""A schema of values that many schemas have."""


NUMBER_FORMS = (NumberForm(), NumberForm("plain"), NumberForm("plain", "bounded"))
"""The library's default, integers by their digits alone, and what servers and programs write."""


def install_common(state_table: StateTable, languages: Languages) -> None:
    """Install the lexemes that most schemas need."""
    for whitespace in ("compact", "none"):
        layout = Layout(whitespace)
        key = KeyClosing(layout)
        names = state_table.target(state_table.install(AnyText(key, 1, KEY_SLICE)), QUOTE)
        state_table.target(names, 0)
        for bracket in (0x7D, 0x5D):
            state_table.install(AfterLexeme(bracket, layout.before_comma(), layout.close()))
        numbers = {
            languages.numbers(formula, form)
            for formula in (TRUE, atom(Integer()))
            for form in NUMBER_FORMS
        }
        for number in sorted(numbers, key=lambda dfa: dfa.digest):
            start = state_table.install(DfaLexeme(number, FIRST_SCALAR))
            for byte in b"-0123456789":
                digit = state_table.target(start, byte)
                state_table.target(digit, 0)
                for after in b"0.eE":
                    if state_table.target(digit, after) >= 0:
                        state_table.target(state_table.target(digit, after), 0)
        for text in (b"rue", b"alse", b"ull"):
            state_table.install(LiteralLexeme(text, FIRST_SCALAR))
        state_table.install(AnyText(Closing(), FIRST_SCALAR, VALUE_SLICE))

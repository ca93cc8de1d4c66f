"""JSON number texts, by conditions on their values, as automata."""

from .languages import (
    any_number,
    at_least,
    at_most,
    equal_to,
    equal_to_any,
    integers,
    multiples,
    number_dfa,
    one_spelling,
    plain_integers,
    short_number,
    short_numbers,
    spellings,
)

__all__ = [
    "any_number",
    "at_least",
    "at_most",
    "equal_to",
    "equal_to_any",
    "integers",
    "multiples",
    "number_dfa",
    "one_spelling",
    "plain_integers",
    "short_number",
    "short_numbers",
    "spellings",
]

"""Regular languages of UTF-8 bytes: automata, their algebra, and the regexes that describe them."""

from ramet.grammars.limits import DEFAULT_LIMITS, RegularLimits

from .automata.algebra import (
    characters,
    concat,
    intersect_all,
    literal,
    literals,
    optional,
    repeat,
    star,
    union_all,
)
from .automata.dfa import EMPTY, EPSILON, Dfa, any_text
from .automata.json_strings import Transducer, decoder_table, json_string_body
from .regex import regex_dfa

__all__ = [
    "DEFAULT_LIMITS",
    "EMPTY",
    "EPSILON",
    "Dfa",
    "RegularLimits",
    "Transducer",
    "any_text",
    "characters",
    "concat",
    "decoder_table",
    "intersect_all",
    "json_string_body",
    "literal",
    "literals",
    "optional",
    "regex_dfa",
    "repeat",
    "star",
    "union_all",
]

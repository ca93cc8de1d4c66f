"""Context-free grammars in GBNF's and Lark's dialects, as lazily determinised automata."""

from __future__ import annotations

import re
from typing import Literal

from ramet.grammars.constraints import Ebnf
from ramet.grammars.regular import DEFAULT_LIMITS, RegularLimits

from .ast import Rules
from .automaton import GrammarAutomaton
from .gbnf import parse_gbnf
from .lark import parse_lark
from .network import build_network, check_names

__all__ = [
    "GrammarAutomaton",
    "Rules",
    "build_network",
    "ebnf_automaton",
    "parse_ebnf",
    "parse_gbnf",
    "parse_lark",
]

_QUOTED = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|#[^\n]*')


def ebnf_automaton(constraint: Ebnf, limits: RegularLimits = DEFAULT_LIMITS) -> GrammarAutomaton:
    """The automaton of the texts that a grammar derives.

    Raises:
        ConstraintError: a syntax error or an unknown rule, with ``path`` "offset n"; a construct
            that isn't supported, by its name; a grammar that derives no text.
        GrammarTooComplexError: over the limits.
    """
    return GrammarAutomaton(build_network(parse_ebnf(constraint), limits))


def parse_ebnf(constraint: Ebnf) -> Rules:
    """The rules of a grammar in either dialect; every rule that they call exists."""
    dialect = constraint.dialect
    if dialect == "auto":
        dialect = dialect_of(constraint.grammar)
    if dialect == "gbnf":
        rules = parse_gbnf(constraint.grammar, constraint.start)
    else:
        narrow = constraint.classes == "ascii"
        rules = parse_lark(constraint.grammar, constraint.start, narrow=narrow)
    check_names(rules)
    return rules


def dialect_of(grammar: str) -> Literal["gbnf", "lark"]:
    """GBNF defines rules by ``::=``, Lark by ``:``."""
    return "gbnf" if "::=" in _QUOTED.sub("", grammar) else "lark"

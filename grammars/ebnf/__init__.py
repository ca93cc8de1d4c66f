"""Context-free grammars in GBNF's and Lark's dialects, as lazily determinised automata."""

from __future__ import annotations

from typing import Literal

from ramet.grammars.constraints import Ebnf
from ramet.grammars.errors import ConstraintError, GrammarTooComplexError
from ramet.grammars.regular import DEFAULT_LIMITS, RegularLimits

from .ast import Rules
from .automaton import GrammarAutomaton
from .gbnf import parse_gbnf
from .lark import parse_lark
from .network import build_network, check_names
from .notation import notation_of

__all__ = [
    "GrammarAutomaton",
    "Rules",
    "build_network",
    "ebnf_automaton",
    "parse_ebnf",
    "parse_gbnf",
    "parse_lark",
]


def ebnf_automaton(constraint: Ebnf, limits: RegularLimits = DEFAULT_LIMITS) -> GrammarAutomaton:
    """The automaton of the texts that a grammar derives.

    Raises:
        ConstraintError: a syntax error or an unknown rule, with ``path`` "offset n"; a construct
            that isn't supported, by its name; a grammar that derives no text.
        GrammarTooComplexError: over the limits.
    """
    return GrammarAutomaton(build_network(parse_ebnf(constraint), limits))


def parse_ebnf(constraint: Ebnf) -> Rules:
    """The rules of a grammar in either dialect; every rule that they call exists.

    Raises:
        ConstraintError: as for ``ebnf_automaton``; where the dialect is ``auto``, it says as which
            one the grammar was read and why.
    """
    if constraint.dialect != "auto":
        return _parse(constraint, constraint.dialect)
    notation = notation_of(constraint.grammar)
    try:
        return _parse(constraint, notation.dialect)
    except GrammarTooComplexError:
        raise
    except ConstraintError as error:
        read = f"{error.reason} (read as {notation.name}: {notation.reason})"
        raise ConstraintError(error.path, error.keyword, read) from None


def _parse(constraint: Ebnf, dialect: Literal["gbnf", "lark"]) -> Rules:
    if dialect == "gbnf":
        rules = parse_gbnf(constraint.grammar, constraint.start)
    else:
        narrow = constraint.classes == "ascii"
        rules = parse_lark(constraint.grammar, constraint.start, narrow=narrow)
    check_names(rules)
    return rules

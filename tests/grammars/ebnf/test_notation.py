"""Promised: a grammar's notation is told by its first rule, and errors say which one was read."""

from __future__ import annotations

import re

import pytest

from ramet.grammars.constraints import Ebnf
from ramet.grammars.ebnf import ebnf_automaton
from ramet.grammars.ebnf.notation import notation_of
from ramet.grammars.errors import ConstraintError


@pytest.mark.parametrize(
    ("grammar", "dialect"),
    [
        ('root ::= a "=" b\na ::= [+*] | "x"\nb ::= a', "gbnf"),
        ('root ::= "start: " [a-z]+ | "%ignore WS"', "gbnf"),
        ("# start: x\n\n  my-root\n::= [a]", "gbnf"),
        ('// root ::= x\nstart: "a"', "lark"),
        ('start: NAME "::=" NAME // not root ::= NAME\nNAME: /[a-z]+/', "lark"),
        ('start: /[^"=]+/ "::=" NAME\nNAME: /[a-z]+/', "lark"),
        ('?start.2: "a"', "lark"),
        ('pair{x, y}: x y\nstart: pair{"a", "b"}', "lark"),
        ('%import common.INT\nstart: INT "::="', "lark"),
        ('!start : "::="', "lark"),
    ],
)
def test_notation(grammar: str, dialect: str) -> None:
    assert notation_of(grammar).dialect == dialect


@pytest.mark.parametrize(
    ("grammar", "words"),
    [
        ('<root> ::= "a"', "BNF"),
        ('root = "a", "b" ;', "ISO EBNF"),
        ("S -> a b", "arrows"),
        ("S → a b", "arrows"),
        ("root ::= (", "read as GBNF: its first rule is defined by 'root ::='"),
        ("start: (", "read as Lark: its first rule is defined by 'start:'"),
        ("%import common.NOPE\nstart: NOPE", "read as Lark: it begins with '%import'"),
        ("?", "no rule of GBNF"),
    ],
)
def test_errors_name_the_notation(grammar: str, words: str) -> None:
    with pytest.raises(ConstraintError, match=re.escape(words)):
        ebnf_automaton(Ebnf(grammar))

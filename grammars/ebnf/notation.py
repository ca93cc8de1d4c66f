"""Detects a grammar's notation by the definition of its first rule."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from ramet.grammars.errors import ConstraintError

_ASIDE = re.compile(r"(?:\s|#[^\n]*|//[^\n]*)*")
_GBNF = re.compile(r"[A-Za-z0-9_-]+\s*::=")
_LARK = re.compile(
    r"(?P<directive>%[a-z]+)|[?!]{0,2}[A-Za-z_]\w*(?:\.-?\d+)?(?:\{[^}\n]*\})?\s*:(?!:=)"
)
_OTHERS = (
    (re.compile(r"<[^<>\n]+>\s*::="), "BNF (<name> ::= ...)"),
    (re.compile(r"[\w -]+?\s*=(?!=)"), "ISO EBNF (name = ... ;)"),
    (re.compile(r"[\w']+\s*(?:->|→|⟶)"), "arrows (name -> ...)"),
)


@dataclass(frozen=True)
class Notation:
    """A notation, and by what it is recognised."""

    dialect: Literal["gbnf", "lark"]
    reason: str

    @property
    def name(self) -> str:
        """As people call it."""
        return {"gbnf": "GBNF", "lark": "Lark"}[self.dialect]


def notation_of(grammar: str) -> Notation:
    """GBNF defines rules by ``::=``, Lark by ``:``; what strings and comments hold is no evidence.

    Raises:
        ConstraintError: another notation that is recognised, by its name.
    """
    found = _ASIDE.match(grammar)
    begin = found.end() if found else 0
    rule = _GBNF.match(grammar, begin)
    if rule:
        return Notation("gbnf", f"its first rule is defined by {_shown(rule.group())}")
    rule = _LARK.match(grammar, begin)
    if rule:
        what = "it begins with" if rule.group("directive") else "its first rule is defined by"
        return Notation("lark", f"{what} {_shown(rule.group())}")
    for pattern, name in _OTHERS:
        rule = pattern.match(grammar, begin)
        if rule:
            raise ConstraintError(
                f"offset {begin}",
                "ebnf",
                f"{_shown(rule.group())} is {name}; only GBNF (name ::= ...) and Lark (name: ...)"
                " are read",
            )
    return Notation("lark", "no rule of GBNF (name ::= ...) begins it")


def _shown(text: str) -> str:
    return repr(" ".join(text.split()))

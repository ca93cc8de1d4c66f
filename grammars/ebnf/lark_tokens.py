"""The lexical level of Lark's grammar notation."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ramet.grammars.errors import ConstraintError


@dataclass(frozen=True)
class Token:
    """One token: its kind, its text, and where it begins."""

    kind: str
    text: str
    offset: int


_SPEC = re.compile(
    r"""
      (?P<space>   (?: [ \t\r\n\f] | //[^\n]* | \#[^\n]* | \\[ \t]*\r?\n )+ )
    | (?P<string>  "(?:[^"\\\n]|\\.)*"i? )
    | (?P<regex>   /(?!/)(?:[^/\\\n]|\\.)+/[imslux]* )
    | (?P<to>      -> )
    | (?P<range>   \.\. )
    | (?P<name>    [!?]{0,2} [A-Za-z_][A-Za-z_0-9]* )
    | (?P<number>  [+-]?[0-9]+ )
    | (?P<directive> %[a-z]+ )
    | (?P<special> <[^>\n]*> | @[A-Za-z_0-9]* )
    | (?P<sign>    [:|()\[\]{},~*+?.] )
    """,
    re.VERBOSE,
)


def tokenise(text: str) -> list[Token]:
    """The tokens of a grammar, an ``end`` last.

    Raises:
        ConstraintError: at ``offset n`` of a character that begins no token.
    """
    tokens: list[Token] = []
    at = 0
    while at < len(text):
        found = _SPEC.match(text, at)
        if found is None:
            raise ConstraintError(f"offset {at}", "ebnf", f"unexpected character {text[at]!r}")
        kind = found.lastgroup
        assert kind is not None
        value = found.group()
        if kind == "name" and value.lstrip("!?") != value and not _begins_line(text, at):
            # ``a?b`` is a quantifier and a name; only a definition's name carries a mark.
            kind, value = "sign", value[0]
            if value == "!":
                raise ConstraintError(f"offset {at}", "ebnf", "unexpected character '!'")
        if kind != "space":
            tokens.append(Token(kind, value, at))
        at += len(value)
    return [*tokens, Token("end", "", len(text))]


def _begins_line(text: str, at: int) -> bool:
    return not text[text.rfind("\n", 0, at) + 1 : at].strip()

"""The format ``regex``: texts that are regular expressions of ECMA-262, as an automaton.

That language is not regular: groups nest without bound. This is a subset, valid with and without
the ``u`` flag, that leaves out

- groups nested deeper than ``MAX_NESTING``, and lookarounds inside groups or with groups inside;
- named groups and backreferences, whose names must be unique and exist;
- quantifiers ``{m,n}`` but for m of one digit and n over it or with more digits;
- ranges in a class but between two letters of one case, two digits, or an ``\\xHH`` or ``\\uHHHH``
  that begins with 0 and one that doesn't, and a plain range that starts at space or ``!``.
"""

from __future__ import annotations

import string
from functools import cache

from .algebra import characters, concat, literal, literals, optional, star, union_all
from .dfa import Dfa
from .regex import regex_dfa
from .utf8 import normalised

MAX_NESTING = 2

_SYNTAX = r"^$\.*+?()[]{}|/"
_CLASS_SYNTAX = r"\]-^"


@cache
def regex_format() -> Dfa:
    """The subset described above."""
    quantifier = optional(concat(_quantifiers(), regex_dfa(r"\??")))
    atoms = union_all([_plain_characters(_SYNTAX), regex_dfa("[./]"), _escapes(), _classes()])
    simple = union_all([concat(atoms, quantifier), regex_dfa(r"[\^$]|\\[bB]")])
    close = literal(")")
    look = concat(regex_dfa(r"\(\?<?[=!]"), _alternatives(simple), close)
    expression = _alternatives(simple)
    for depth in range(MAX_NESTING):
        group = concat(regex_dfa(r"\((\?:)?"), expression, close, quantifier)
        terms = [simple, group] if depth < MAX_NESTING - 1 else [simple, group, look]
        expression = _alternatives(union_all(terms))
    return expression


def _alternatives(term: Dfa) -> Dfa:
    branch = star(term)
    return concat(branch, star(concat(literal("|"), branch)))


def _plain_characters(excluded: str) -> Dfa:
    codes = sorted(map(ord, excluded))
    bounds = zip([-1, *codes], [*codes, 0x110000], strict=True)
    return characters(normalised((a + 1, b - 1) for a, b in bounds if a + 1 <= b - 1))


def _quantifiers() -> Dfa:
    in_order = "|".join(f"{m},[{m}-9]" for m in range(10))
    return regex_dfa(rf"[*+?]|\{{([0-9]{{1,3}},?|[0-9],[1-9][0-9]{{1,2}}|{in_order})\}}")


def _escapes() -> Dfa:
    return regex_dfa(
        r"\\([dDwWsSfnrtv^$\\.*+?()\[\]{}|/]|c[A-Za-z]|x[0-9A-Fa-f]{2}"
        r"|u([0-9A-Ca-cE-Fe-f][0-9A-Fa-f]{3}|[Dd][0-7][0-9A-Fa-f]{2}))"
    )


def _classes() -> Dfa:
    single = union_all([_plain_characters(_CLASS_SYNTAX), _escapes(), literal(r"\-")])
    kinds = (string.digits, string.ascii_lowercase, string.ascii_uppercase)
    pairs = [f"{a}-{b}" for kind in kinds for a in kind for b in kind if a <= b]
    pairs += [f"{a}-{chr(b)}" for a in " !" for b in range(0x21, 0x7F) if chr(b) not in r"\]"]
    hexadecimal = regex_dfa(
        r"\\x0[0-9A-Fa-f]-\\x[1-9A-Fa-f][0-9A-Fa-f]"
        r"|\\u0[0-9A-Fa-f]{3}-\\u[1-9A-Fa-f][0-9A-Fa-f]{3}"
    )
    ranges = union_all([literals(pairs), hexadecimal])
    body = concat(star(union_all([single, ranges])), regex_dfa("-?"))
    return concat(regex_dfa(r"\[\^?-?"), body, literal("]"))

"""The format ``regex``: texts that are regular expressions of ECMA-262, as an automaton.

That language is not regular: groups nest without bound. This is a subset, valid with and without
the ``u`` flag, that leaves out

- groups nested deeper than ``MAX_NESTING``, and lookarounds inside groups or with groups inside;
- named groups and backreferences, whose names must be unique and exist;
- quantifiers ``{m,n}``, except those with m of one digit and n above it or with more digits;
- ranges in a class but between two letters of one case, two digits, or an ``\\xHH`` or ``\\uHHHH``
  that begins with 0 and one that doesn't, and a plain range that starts at space or ``!``.
"""

from __future__ import annotations

import string
from functools import cache

from ramet.grammars.regular.automata.algebra import (
    characters,
    concat,
    literal,
    literals,
    optional,
    star,
    union_all,
)
from ramet.grammars.regular.automata.dfa import Dfa
from ramet.grammars.regular.automata.nfa import NfaBuilder
from ramet.grammars.regular.automata.utf8 import normalised
from ramet.grammars.regular.regex import regex_dfa

MAX_NESTING = 2

_SYNTAX = r"^$\.*+?()[]{}|/"
_CLASS_SYNTAX = r"\]-^"


@cache
def regex_format() -> Dfa:
    """The subset described above."""
    quantifier = optional(concat(_quantifiers(), regex_dfa(r"\??")))
    atoms = union_all([_plain_characters(_SYNTAX), regex_dfa("[./]"), _escapes(), _classes()])
    # Options may be empty, so a bar may stand wherever a term may.
    term = union_all([concat(atoms, quantifier), regex_dfa(r"[\^$|]|\\[bB]")])
    look = concat(regex_dfa(r"\(\?<?[=!]"), star(term), literal(")"))
    opening = regex_dfa(r"\((\?:)?")
    builder = NfaBuilder()

    def fill(inside: int, depth: int) -> None:
        """Terms and groups lead from a state back to it."""
        builder.epsilon_edge(builder.dfa(term, inside), inside)
        if depth > 0:
            group = builder.dfa(opening, inside)
            fill(group, depth - 1)
            closed = builder.byte_range(0x29, 0x29, group)
            builder.epsilon_edge(builder.dfa(quantifier, closed), inside)

    builder.start = builder.new_state()
    fill(builder.start, MAX_NESTING)
    builder.epsilon_edge(builder.dfa(look, builder.start), builder.start)
    return builder.build(builder.start)


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

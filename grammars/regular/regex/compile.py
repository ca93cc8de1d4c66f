"""``regex_dfa``: a regex as the exact automaton of the texts it matches."""

from __future__ import annotations

from ramet.grammars.errors import ConstraintError, GrammarTooComplexError
from ramet.grammars.limits import DEFAULT_LIMITS, RegularLimits
from ramet.grammars.regular.automata.algebra import intersect_all
from ramet.grammars.regular.automata.dfa import Dfa
from ramet.grammars.regular.automata.nfa import NfaBuilder

from .assertions import assertion_dfa
from .parser import Dialect, parse
from .syntax import (
    ANY_TEXT,
    AT_START,
    After,
    Alternatives,
    Before,
    Characters,
    Node,
    Repeat,
    Sequence,
    alternatives,
    has_assertions,
    sequence,
)


def regex_dfa(
    pattern: str,
    *,
    dialect: Dialect = "python",
    search: bool = False,
    narrow: bool = False,
    limits: RegularLimits = DEFAULT_LIMITS,
) -> Dfa:
    """The texts that a pattern matches, over code points, as UTF-8 bytes.

    Args:
        pattern: the regex.
        dialect: Python's ``re`` on ``str``, or ECMA-262 in Unicode mode.
        search: False: the whole text must match (``re.fullmatch``). True: the pattern may match
            anywhere unless it is anchored, as in JSON Schema.
        narrow: as for ``parse``; without effect where it would leave no text.
        limits: how large the automaton may grow.

    Lookahead, lookbehind, anchors and word borders are exact wherever they stand.

    Raises:
        ConstraintError: a syntax error, or a construct that no automaton can decide, with
            ``path`` "offset n".
        GrammarTooComplexError: over the limits.
    """
    node = parse(pattern, dialect, narrow=narrow)
    if search:
        node = _anywhere(node)
    found = node_dfa(node, limits)
    if narrow and found.is_empty:
        return regex_dfa(pattern, dialect=dialect, search=search, limits=limits)
    return found


def node_dfa(node: Node, limits: RegularLimits = DEFAULT_LIMITS) -> Dfa:
    """The texts that the whole of a syntax tree matches."""
    try:
        return _whole(node, limits)
    except RecursionError:
        raise GrammarTooComplexError("", "regex", "the expression nests too deeply") from None


def _anywhere(node: Node) -> Node:
    """What the whole of a text matches exactly if ``node`` matches somewhere in it.

    A condition on the text so far at the front of an option is what that text is; likewise at its
    back. Options without are searched for together.
    """
    groups: dict[tuple[Node, Node], list[Node]] = {}
    for option in node.options if isinstance(node, Alternatives) else (node,):
        parts: list[Node] = list(option.parts) if isinstance(option, Sequence) else [option]
        before: Node = ANY_TEXT
        after: Node = ANY_TEXT
        match parts:
            case [Before(part, False), *rest]:
                before, parts = part, rest
        match parts:
            case [*rest, After(part, False)]:
                after, parts = part, rest
        groups.setdefault((before, after), []).append(sequence(parts))
    return alternatives(
        sequence((before, alternatives(options), after))
        for (before, after), options in groups.items()
    )


def _whole(node: Node, limits: RegularLimits) -> Dfa:
    if not has_assertions(node):
        return _plain_dfa(node, limits)
    if whole_conditions(node) != [(node, False)]:
        return intersect_all(condition_dfas(node, limits), limits)
    return assertion_dfa(node, _whole, limits)


def condition_dfas(node: Node, limits: RegularLimits) -> list[Dfa]:
    """The languages whose intersection a regex is, as its conditions at either end have it."""
    found = []
    for part, negated in whole_conditions(node):
        language = _whole(part, limits)
        found.append(language.complement(limits) if negated else language)
    return found


def whole_conditions(node: Node) -> list[tuple[Node, bool]]:
    """A regex without its conditions on the whole text, and those; True: it must not match."""
    if not isinstance(node, Sequence):
        return [(node, False)]
    conditions: list[After | Before] = []
    parts = list(node.parts)
    while parts and isinstance(parts[0], After | Before):
        if isinstance(parts[0], After):
            conditions.append(parts[0])
        elif parts[0] != AT_START:
            break
        parts.pop(0)
    while parts and isinstance(parts[-1], After | Before):
        if isinstance(parts[-1], Before):
            conditions.append(parts[-1])
        elif parts[-1].negated or not _matches_nothing(parts[-1].part):
            break
        parts.pop()
    return [(sequence(parts), False), *((c.part, c.negated) for c in conditions)]


def _plain_dfa(node: Node, limits: RegularLimits) -> Dfa:
    builder = NfaBuilder(limits)
    builder.start = builder.new_state()
    end = builder.new_state()
    for option in node.options if isinstance(node, Alternatives) else (node,):
        match option:
            case Sequence((*parts, last)) if last == ANY_TEXT:
                before = plain(builder, sequence(parts), builder.start)
                builder.epsilon_edge(before, builder.any_text())
            case _:
                builder.epsilon_edge(plain(builder, option, builder.start), end)
    if builder.absorbing >= 0:
        builder.epsilon_edge(builder.absorbing, end)
    return builder.build(end)


def _matches_nothing(node: Node) -> bool:
    """Whether the empty text is known to match."""
    match node:
        case Characters() | Before() | After():
            return False
        case Sequence(parts):
            return all(map(_matches_nothing, parts))
        case Alternatives(options):
            return any(map(_matches_nothing, options))
        case Repeat(part, minimum, _):
            return minimum == 0 or _matches_nothing(part)


def plain(builder: NfaBuilder, node: Node, source: int) -> int:
    """Adds a tree without assertions to an automaton under construction."""
    match node:
        case Characters(ranges):
            return builder.characters(ranges, source)
        case Sequence(parts):
            for part in parts:
                source = plain(builder, part, source)
            return source
        case Alternatives(options):
            end = builder.new_state()
            for option in options:
                builder.epsilon_edge(plain(builder, option, source), end)
            return end
        case Repeat(part, minimum, maximum):
            return builder.repeat(lambda b, s: plain(b, part, s), source, minimum, maximum)
        case _:
            raise ConstraintError("", "regex", "an assertion where none can stand")

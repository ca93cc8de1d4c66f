"""Large regexes as networks: a counted repetition is a chain of calls of what it repeats.

One automaton of ``(\\w+ ){1,300}\\w+`` has each character's automaton 300 times; its network has it
once, and 300 calls. The network is determinised as a text is read (see ``automaton.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ramet.grammars.limits import RegularLimits
from ramet.grammars.regular import EPSILON
from ramet.grammars.regular.regex import node_dfa, syntax

from .ast import Call, Expression, Repeat, Rules, Terminal, alternatives, sequence
from .automaton import GrammarAutomaton
from .network import build_network

_SMALL = 40
"""Code point sets of an expression that becomes one automaton, repetitions written out."""

_HUGE = 1 << 30
_NOTHING = Terminal(EPSILON)

_MAX_REGULAR_STATES = 2_000
"""A rule whose automaton has more states is called, not written out."""


def regex_automaton(node: syntax.Node, limits: RegularLimits) -> GrammarAutomaton:
    """The lazily determinised automaton of the texts that a regex without assertions matches.

    Raises:
        EmptyConstraintError: no text matches.
        GrammarTooComplexError: over the limits.
    """
    rules: dict[str, Expression] = {}
    rules["root"] = _Converter(rules, limits).expression(node)
    return GrammarAutomaton(
        build_network(
            Rules(rules, "root"),
            limits,
            max_regular_states=_MAX_REGULAR_STATES,
            max_inlined_states=1,
        )
    )


class _Converter:
    def __init__(self, rules: dict[str, Expression], limits: RegularLimits) -> None:
        self._rules = rules
        self._limits = limits

    def expression(self, node: syntax.Node) -> Expression:
        """A tree as an expression over rules, to which those that it needs are added."""
        if size_of(node) <= _SMALL:
            return Terminal(node_dfa(node, self._limits))
        match node:
            case syntax.Sequence(parts):
                return sequence(map(self.expression, _grouped(parts, syntax.sequence)))
            case syntax.Alternatives(options):
                return alternatives(map(self.expression, _grouped(options, syntax.alternatives)))
            case syntax.Repeat(part, minimum, maximum):
                name = f"repeated {len(self._rules)}"
                self._rules[name] = _NOTHING  # takes the name
                self._rules[name] = self.expression(part)
                return Repeat(Call(name), minimum, maximum)
            case _:
                return Terminal(node_dfa(node, self._limits))


def _grouped(
    parts: tuple[syntax.Node, ...], join: Callable[[list[syntax.Node]], syntax.Node]
) -> Iterator[syntax.Node]:
    """Parts, with runs of small ones joined."""
    run: list[syntax.Node] = []
    for part in parts:
        if run and size_of(join([*run, part])) > _SMALL:
            yield join(run)
            run = []
        run.append(part)
    if run:
        yield join(run)


def size_of(node: syntax.Node) -> int:
    """About the number of code point sets of an expression whose repetitions are written out."""
    match node:
        case syntax.Characters():
            return 1
        case syntax.Repeat(part, minimum, maximum):
            times = max(1, minimum if maximum is None else maximum)
            return min(_HUGE, times * max(1, size_of(part)))
        case _:
            return min(_HUGE, sum(map(size_of, syntax.children(node))))

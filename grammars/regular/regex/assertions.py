"""Assertions inside a regex: conditions on the text before or after a place, decided exactly.

The expression becomes an automaton whose transitions may also be conditions. A configuration is

    (state, what each condition's automaton makes of the text so far, obligations)

where an obligation is a state of an automaton that the rest of the text must satisfy. Passing a
condition on what lies behind looks at the second part; passing one on what lies ahead adds to the
third. The configurations are finitely many and form an ordinary nondeterministic automaton.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ramet.grammars.errors import ConstraintError
from ramet.grammars.limits import RegularLimits, too_complex
from ramet.grammars.regular.automata.dfa import Dfa, any_text
from ramet.grammars.regular.automata.nfa import NfaBuilder

from .syntax import After, Alternatives, Before, Characters, Node, Repeat, Sequence, children

_Context = tuple[int, ...]
_Obligations = frozenset[tuple[int, int]]
_MAX_CONFIGURATIONS = 20_000
"""They are made one by one, so there may be fewer of them than of an automaton's states."""


def assertion_dfa(
    node: Node, whole: Callable[[Node, RegularLimits], Dfa], limits: RegularLimits
) -> Dfa:
    """The texts that the whole of ``node`` matches; ``whole`` compiles the conditions."""
    behind = _Behind(node, whole, limits)
    return _Expansion(behind, whole, limits).language(node, behind.start())


class _Behind:
    """The automata of all conditions on the text so far, which run along from its start."""

    def __init__(
        self, node: Node, whole: Callable[[Node, RegularLimits], Dfa], limits: RegularLimits
    ) -> None:
        self.index: dict[Node, int] = {}
        self.dfas: list[Dfa] = []
        stack = [node]
        while stack:
            node = stack.pop()
            stack += children(node) if not isinstance(node, Before) else ()
            if isinstance(node, Before) and node.part not in self.index:
                if _looks_ahead(node.part):
                    raise ConstraintError(
                        "", "lookbehind", "a lookahead or word border inside a lookbehind"
                    )
                self.index[node.part] = len(self.dfas)
                self.dfas.append(whole(node.part, limits))
        self.transitions = [d.transitions.tolist() for d in self.dfas]

    def start(self) -> _Context:
        return tuple(-1 if d.is_empty else d.start for d in self.dfas)

    def step(self, context: _Context, byte: int) -> _Context:
        return tuple(
            rows[s][byte] if s >= 0 else -1
            for s, rows in zip(context, self.transitions, strict=True)
        )

    def holds(self, condition: Before, context: _Context) -> bool:
        i = self.index[condition.part]
        state = context[i]
        return (state >= 0 and bool(self.dfas[i].accepting[state])) != condition.negated


def _looks_ahead(node: Node) -> bool:
    return isinstance(node, After) or any(map(_looks_ahead, children(node)))


@dataclass
class _Conditional:
    """An automaton some of whose transitions are conditions."""

    builder: NfaBuilder
    conditions: list[tuple[int, int, Before | After]] = field(default_factory=list)

    def add(self, node: Node, source: int) -> int:
        builder = self.builder
        match node:
            case Characters(ranges):
                return builder.characters(ranges, source)
            case Sequence(parts):
                for part in parts:
                    source = self.add(part, source)
                return source
            case Alternatives(options):
                end = builder.new_state()
                for option in options:
                    builder.epsilon_edge(self.add(option, source), end)
                return end
            case Repeat(part, minimum, maximum):
                return self.repeat(part, source, minimum, maximum)
            case Before() | After():
                end = builder.new_state()
                self.conditions.append((source, end, node))
                return end

    def repeat(self, part: Node, source: int, minimum: int, maximum: int | None) -> int:
        builder = self.builder
        entry = builder.new_state()
        builder.epsilon_edge(source, entry)
        ends = [entry] if minimum == 0 else []
        for k in range(1, (maximum if maximum is not None else max(minimum, 1)) + 1):
            exit_ = self.add(part, entry)
            if builder.num_states > builder.limits.max_states:
                raise too_complex("a repetition", builder.limits)
            if maximum is None and k >= minimum and k >= 1 and k == max(minimum, 1):
                builder.epsilon_edge(exit_, entry)
            entry = builder.new_state()
            builder.epsilon_edge(exit_, entry)
            if k >= minimum:
                ends.append(entry)
        end = builder.new_state()
        for state in ends:
            builder.epsilon_edge(state, end)
        return end


class _Expansion:
    def __init__(
        self,
        behind: _Behind,
        whole: Callable[[Node, RegularLimits], Dfa],
        limits: RegularLimits,
    ) -> None:
        self.behind = behind
        self.whole = whole
        self.limits = limits
        self.ahead: dict[tuple[After, _Context], int | None] = {}
        self.obliged: list[Dfa] = []
        self.rows: list[list[list[int]]] = []
        self.free: list[set[int]] = []
        self.known_runs: dict[frozenset[int], list[tuple[int, int]]] = {}
        self.num_configurations = 0

    def language(self, node: Node, context: _Context) -> Dfa:
        """What ``node`` matches up to the end of the text, after a text that led to ``context``."""
        if self.limits.max_states < len(self.ahead):
            raise too_complex("a regex with assertions", self.limits)
        automaton = _Conditional(NfaBuilder(self.limits))
        automaton.builder.start = automaton.builder.new_state()
        end = automaton.add(node, automaton.builder.start)
        return self.expand(automaton, end, context)

    def expand(self, automaton: _Conditional, end: int, context: _Context) -> Dfa:
        builder = automaton.builder
        edges: dict[int, list[tuple[int, int, int]]] = {}
        for source, low, high, target in builder.edges:
            edges.setdefault(source, []).append((low, high, target))
        empty: dict[int, list[int]] = {}
        for source, target in builder.epsilon_edges:
            empty.setdefault(source, []).append(target)
        conditions: dict[int, list[tuple[int, Before | After]]] = {}
        for source, target, condition in automaton.conditions:
            conditions.setdefault(source, []).append((target, condition))

        result = NfaBuilder(self.limits)
        ids: dict[tuple[int, _Context, _Obligations], int] = {}
        queue: list[tuple[int, _Context, _Obligations]] = []

        def visit(state: int, context: _Context, obligations: _Obligations) -> int:
            key = (state, context, obligations)
            number = ids.get(key)
            if number is None:
                number = ids[key] = result.new_state()
                queue.append(key)
                self.num_configurations += 1
                if self.num_configurations > min(_MAX_CONFIGURATIONS, self.limits.max_states):
                    raise too_complex("a regex with assertions", self.limits)
            return number

        result.start = visit(builder.start, context, frozenset())
        final = []
        for state, context, obligations in queue:  # The queue grows on the way.
            number = ids[state, context, obligations]
            if state == end and all(self.obliged[d].accepting[s] for d, s in obligations):
                final.append(number)
            for target in empty.get(state, ()):
                result.epsilon_edge(number, visit(target, context, obligations))
            for target, condition in conditions.get(state, ()):
                after = self.passed(condition, context, obligations)
                if after is not None:
                    result.epsilon_edge(number, visit(target, context, after))
            runs = self.runs(frozenset(d for d, _ in obligations))
            for low, high, target in edges.get(state, ()):
                for first, last in runs[bisect_right(runs, (low, 256)) - 1 :]:
                    if first > high:
                        break
                    moved = self.moved(context, obligations, first)
                    if moved is not None:
                        place = visit(target, *moved)
                        result.edges.append((number, max(first, low), min(last, high), place))
        accepting = np.zeros(max(1, result.num_states), np.bool_)
        accepting[final] = True
        return result.build_for(accepting)

    def runs(self, obliged: frozenset[int]) -> list[tuple[int, int]]:
        """First and last byte of the runs of bytes that no automaton in play distinguishes."""
        known = self.known_runs.get(obliged)
        if known is None:
            borders = {0}
            for dfa in (*self.behind.dfas, *(self.obliged[d] for d in obliged)):
                borders.update(dfa.byte_runs[:, 0].tolist())
            firsts = sorted(borders)
            known = list(zip(firsts, [*(f - 1 for f in firsts[1:]), 255], strict=True))
            self.known_runs[obliged] = known
        return known

    def passed(
        self, condition: Before | After, context: _Context, obligations: _Obligations
    ) -> _Obligations | None:
        """The obligations once a condition is passed; None if it doesn't hold."""
        if isinstance(condition, Before):
            return obligations if self.behind.holds(condition, context) else None
        key = (condition, context)
        if key not in self.ahead:
            language = self.language(condition.part, context)
            if condition.negated:
                language = language.complement(self.limits)
            self.ahead[key] = None if language.is_empty else self.oblige(language)
        number = self.ahead[key]
        if number is None:
            return None
        if self.obliged[number].start in self.free[number]:
            return obligations
        return obligations | {(number, self.obliged[number].start)}

    def oblige(self, language: Dfa) -> int:
        self.obliged.append(language)
        self.rows.append(language.transitions.tolist())
        self.free.append(_free_states(language))
        return len(self.obliged) - 1

    def moved(
        self, context: _Context, obligations: _Obligations, byte: int
    ) -> tuple[_Context, _Obligations] | None:
        """Context and obligations after a byte; None if an obligation fails."""
        after = set()
        for number, state in obligations:
            state = self.rows[number][state][byte]
            if state < 0:
                return None
            if state not in self.free[number]:
                after.add((number, state))
        return self.behind.step(context, byte), frozenset(after)


def _free_states(language: Dfa) -> set[int]:
    """The states after which every valid text is a member: they oblige to nothing."""
    universe = any_text()
    rows, all_rows = language.transitions, universe.transitions
    free = set()
    for state in np.flatnonzero(language.accepting).tolist():
        pairs = {(state, universe.start)}
        queue = list(pairs)
        for s, u in queue:
            joint = {(int(a), int(b)) for a, b in zip(rows[s], all_rows[u], strict=True) if b >= 0}
            if bool(language.accepting[s]) != bool(universe.accepting[u]) or any(
                a < 0 for a, _ in joint
            ):
                break
            if len(pairs) > universe.num_states:
                break
            queue += joint - pairs
            pairs |= joint
        else:
            free.add(state)
    return free

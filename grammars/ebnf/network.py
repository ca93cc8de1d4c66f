"""A grammar as a recursive transition network without left recursion.

Each rule becomes a deterministic automaton with transitions by bytes or by calls of rules (Woods,
1970).
Three transformations make walks of the network terminate, without dead ends:

- Rules that derive no text are removed, and with them all that needs them.
- A call consumes at least one byte: where a rule derives the empty text too, an empty transition
  bypasses its calls.
- Left recursion is removed (left-corner transform). For rules that begin with one another, a
  derivation of A is: a beginning that calls none of them and completes some rule B; then what
  follows a leading B in a rule C, which completes C; and so on until A is complete. That is an
  automaton with one state "B is complete" for each rule, entered from the rules' other beginnings.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ramet.grammars.errors import ConstraintError, EmptyConstraintError, GrammarTooComplexError
from ramet.grammars.regular import EPSILON, Dfa, RegularLimits
from ramet.grammars.regular.automata.nfa import NfaBuilder
from ramet.grammars.regular.loops.canonical import equal_columns

from .ast import (
    Alternatives,
    Call,
    Expression,
    Foreign,
    Repeat,
    Rules,
    Sequence,
    Terminal,
    calls,
)
from .rule_sets import components, derives_nothing, derives_text, fixpoint, has_foreign

_CALL = 256
"""Symbols below this are bytes; this plus n is the n-th name: a rule or something foreign."""

_MAX_INLINED_STATES = 64


@dataclass(frozen=True)
class Network:
    """All rules' automata side by side.

    Attributes:
        class_of: uint8[256], each byte's class.
        table: int32[num_nodes, num_classes]: the next node, or -1.
        call_transitions: for each node (the called rule's first node, the node after it) pairs; the
            n-th foreign thing is called as ``foreign_node(n)``.
        is_final: bool[num_nodes]: whether a rule may end in a node.
        start: the first node of the rule that the grammar starts with.
        is_nullable: whether the grammar derives the empty text.
    """

    class_of: NDArray[np.uint8]
    table: NDArray[np.int32]
    call_transitions: list[list[tuple[int, int]]]
    is_final: NDArray[np.bool_]
    start: int
    is_nullable: bool

    @property
    def num_nodes(self) -> int:
        return len(self.is_final)

    @cached_property
    def key(self) -> bytes:
        """A hash of all that it is."""
        digest = hashlib.blake2b(digest_size=16)
        for array in (self.class_of, self.table, self.is_final):
            digest.update(array.tobytes())
        digest.update(repr((self.call_transitions, self.start, self.is_nullable)).encode())
        return digest.digest()

    def byte_moves(self, node: int) -> list[tuple[int, int]]:
        """(A set of bytes as 256 bits, the next node) pairs of a node."""
        row = self.table[node][self.class_of]
        found = []
        for target in np.unique(row[row >= 0]).tolist():
            bits = np.packbits(row == target, bitorder="little").tobytes()
            found.append((int.from_bytes(bits, "little"), target))
        return found


def foreign_node(index: int) -> int:
    """What stands for the ``index``-th foreign thing where a rule's first node would."""
    return -2 - index


def check_names(rules: Rules) -> None:
    """Refuse a grammar in which a rule is called that doesn't exist.

    Raises:
        ConstraintError: at the call.
    """
    if rules.start not in rules.rules:
        raise ConstraintError("", "start", f"there is no rule {rules.start!r} to start with")
    for expression in rules.rules.values():
        for call in calls(expression):
            if call.name not in rules.rules:
                raise ConstraintError(
                    f"offset {call.offset}", call.name, f"there is no rule {call.name!r}"
                )


def build_network(
    rules: Rules,
    limits: RegularLimits,
    *,
    max_regular_states: int | None = None,
    max_inlined_states: int = _MAX_INLINED_STATES,
) -> Network:
    """The network of a grammar.

    A rule without recursion becomes one automaton unless that outgrows the limits, or, if given,
    ``max_regular_states``; then it calls its parts' rules, except those with at most
    ``max_inlined_states``, which are inlined.

    Raises:
        ConstraintError: a rule that doesn't exist, or a grammar that derives no text.
        GrammarTooComplexError: over the limits.
    """
    check_names(rules)
    return _Builder(
        rules, limits, max_regular_states or limits.max_states, max_inlined_states
    ).build()


@dataclass
class _RuleAutomaton:
    """One rule's transitions: ``entry`` is never come back to, and needs a symbol to be left."""

    entry: int
    end: int
    num_states: int
    edges: list[tuple[int, int, int, int]]
    epsilon_edges: list[tuple[int, int]]
    first: list[tuple[int, int, int]] = field(default_factory=list)
    """Symbols (from, to) and target of the transitions that may come first."""


_NO_AUTOMATON = _RuleAutomaton(0, 0, 1, [], [])


class _Builder:
    def __init__(
        self,
        rules: Rules,
        limits: RegularLimits,
        max_regular_states: int,
        max_inlined_states: int,
    ) -> None:
        self.limits = limits
        self.max_inlined_states = max_inlined_states
        self.regular_limits = replace(limits, max_states=min(max_regular_states, limits.max_states))
        self.rules = dict(rules.rules)
        self.start = rules.start
        self.productive = fixpoint(self.rules, derives_text)
        self.nullable = fixpoint(self.rules, derives_nothing)
        self.not_only_nullable = fixpoint(self.rules, self.derives_something)
        self.regular: dict[str, Dfa] = {}
        self.numbers: dict[str | Foreign, int] = {}
        self.names: list[str | Foreign] = []

    def build(self) -> Network:
        if self.start not in self.productive:
            raise EmptyConstraintError("", self.start, "the grammar derives no text")
        if self.start not in self.not_only_nullable:
            nothing = np.empty((0, 1), np.int32)
            return Network(np.zeros(256, np.uint8), nothing, [], np.empty(0, np.bool_), 0, True)
        self.find_regular_rules()
        automata: list[_RuleAutomaton] = []
        self.number(self.start)
        for name in self.names:  # Grows as rules are called.
            automata.append(self.automaton(name) if isinstance(name, str) else _NO_AUTOMATON)
            if sum(a.num_states for a in automata) > self.limits.max_states:
                self.too_complex()
        return self.assemble(self.without_left_recursion(automata))

    def too_complex(self) -> None:
        raise GrammarTooComplexError(
            "", "ebnf", f"the grammar outgrows the limit of {self.limits.max_states} states"
        )

    def number(self, name: str | Foreign) -> int:
        if name not in self.numbers:
            self.numbers[name] = len(self.names)
            self.names.append(name)
        return self.numbers[name]

    def derives_something(self, expression: Expression, known: set[str]) -> bool:
        """Whether an expression derives a text that isn't empty, if the rules in ``known`` do."""
        match expression:
            case Terminal(dfa):
                return not dfa.is_empty and dfa != EPSILON
            case Call(name):
                return name in known
            case Foreign():
                return True
            case Sequence(parts):
                return all(derives_text(part, self.productive) for part in parts) and any(
                    self.derives_something(part, known) for part in parts
                )
            case Alternatives(options):
                return any(self.derives_something(option, known) for option in options)
            case Repeat(part, _, maximum):
                return maximum != 0 and self.derives_something(part, known)

    # -- regular rules ----------------------------------------------------------------------

    def find_regular_rules(self) -> None:
        """Compiles every rule that takes no part in recursion, callees first."""
        callees = {
            name: [c.name for c in calls(e) if c.name in self.productive]
            for name, e in self.rules.items()
        }
        for group in components({n: callees[n] for n in self.productive}):
            name = group[0]
            if len(group) > 1 or name in callees[name] or has_foreign(self.rules[name]):
                continue
            if all(callee in self.regular for callee in callees[name]):
                builder = NfaBuilder(self.regular_limits)
                builder.start = builder.new_state()
                with contextlib.suppress(GrammarTooComplexError):
                    end = self.add(builder, self.rules[name], builder.start, inline=True)
                    self.regular[name] = builder.build(end)

    # -- one rule ---------------------------------------------------------------------------

    def add(
        self, builder: NfaBuilder, expression: Expression, source: int, *, inline: bool = False
    ) -> int:
        """Adds an expression to an automaton; returns where it ends."""
        match expression:
            case Terminal(dfa):
                return self.add_dfa(builder, dfa, source, inline=inline)
            case Call(name):
                if name not in self.productive:
                    return builder.new_state()
                if name not in self.not_only_nullable:
                    return source
                if name in self.regular:
                    return self.add_dfa(builder, self.regular[name], source, inline=inline)
                return self.add_call(builder, name, source, nullable=name in self.nullable)
            case Foreign():
                return self.add_call(builder, expression, source, nullable=False)
            case Sequence(parts):
                for part in parts:
                    source = self.add(builder, part, source, inline=inline)
                return source
            case Alternatives(options):
                end = builder.new_state()
                for option in options:
                    builder.epsilon_edge(self.add(builder, option, source, inline=inline), end)
                return end
            case Repeat(part, minimum, maximum):
                return builder.repeat(
                    lambda b, s: self.add(b, part, s, inline=inline), source, minimum, maximum
                )

    def add_dfa(self, builder: NfaBuilder, dfa: Dfa, source: int, *, inline: bool) -> int:
        if inline or dfa.num_states <= self.max_inlined_states:
            return builder.dfa(dfa, source)
        # A large automaton is a rule of its own, so that its uses share it.
        name = f"dfa {dfa.digest.hex()}"
        self.rules.setdefault(name, Terminal(dfa))
        self.regular[name] = dfa
        return self.add_call(builder, name, source, nullable=dfa.accepts(b""))

    def add_call(
        self, builder: NfaBuilder, name: str | Foreign, source: int, *, nullable: bool
    ) -> int:
        symbol = _CALL + self.number(name)
        end = builder.byte_range(symbol, symbol, source)
        if nullable:
            builder.epsilon_edge(source, end)
        return end

    def automaton(self, name: str) -> _RuleAutomaton:
        builder = NfaBuilder(self.limits)
        begin = builder.new_state()
        if name in self.regular:
            end = builder.dfa(self.regular[name], begin)
        else:
            end = self.add(builder, self.rules[name], begin)
        edges = list(builder.edges)
        for block in builder.edge_blocks:
            edges += map(tuple, block.tolist())
        empty: dict[int, list[int]] = {}
        for source, target in builder.epsilon_edges:
            empty.setdefault(source, []).append(target)
        at_start = {begin}
        queue = [begin]
        for state in queue:
            for target in empty.get(state, ()):
                if target not in at_start:
                    at_start.add(target)
                    queue.append(target)
        first = [(low, high, target) for s, low, high, target in edges if s in at_start]
        entry = builder.new_state()
        return _RuleAutomaton(entry, end, builder.num_states, edges, builder.epsilon_edges, first)

    # -- left recursion ---------------------------------------------------------------------

    def without_left_recursion(self, automata: list[_RuleAutomaton]) -> list[_RuleAutomaton]:
        begins_with = {
            n: [low - _CALL for low, _, _ in a.first if low >= _CALL]
            for n, a in enumerate(automata)
        }
        result = list(automata)
        for group in components(begins_with):
            if len(group) == 1 and group[0] not in begins_with[group[0]]:
                own = automata[group[0]]
                own.edges += [(own.entry, *edge) for edge in own.first]
                continue
            if len(group) * sum(automata[n].num_states for n in group) > self.limits.max_states:
                self.too_complex()
            for number in group:
                result[number] = self.turned_round(number, group, automata)
        return result

    def turned_round(
        self, number: int, group: list[int], automata: list[_RuleAutomaton]
    ) -> _RuleAutomaton:
        complete = {n: i for i, n in enumerate(group)}
        merged = _RuleAutomaton(len(group), complete[number], len(group) + 1, [], [])
        for n in group:
            own, d = automata[n], merged.num_states
            merged.num_states += own.num_states
            merged.edges += [(s + d, low, high, t + d) for s, low, high, t in own.edges]
            merged.epsilon_edges += [(s + d, t + d) for s, t in own.epsilon_edges]
            merged.epsilon_edges.append((own.end + d, complete[n]))
            for low, high, target in own.first:
                if low - _CALL in complete:
                    merged.epsilon_edges.append((complete[low - _CALL], target + d))
                else:
                    merged.edges.append((merged.entry, low, high, target + d))
        return merged

    # -- assembly ---------------------------------------------------------------------------

    def assemble(self, automata: list[_RuleAutomaton]) -> Network:
        tables: list[tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.bool_]]] = []
        offsets = [0]
        for own in automata:
            builder = NfaBuilder(self.limits)
            builder.num_states = own.num_states
            builder.edges, builder.epsilon_edges = own.edges, own.epsilon_edges
            builder.start = own.entry
            final = np.zeros(own.num_states, np.bool_)
            final[own.end] = True
            tables.append(builder.minimal_table(final, _CALL + len(automata)))
            offsets.append(offsets[-1] + len(tables[-1][1]))
        entries = [
            offset if isinstance(name, str) else foreign_node(name.index)
            for name, offset in zip(self.names, offsets, strict=False)
        ]
        rows = np.full((offsets[-1], 256), -1, np.int32)
        call_transitions: list[list[tuple[int, int]]] = [[] for _ in range(offsets[-1])]
        for (symbol_class, table, _), offset in zip(tables, offsets, strict=False):
            by_byte = table[:, symbol_class[:256]]
            rows[offset : offset + len(table)] = np.where(by_byte >= 0, by_byte + offset, -1)
            for state, called, target in _entries(table[:, symbol_class[256:]]):
                call_transitions[state + offset].append((entries[called], target + offset))
        class_of, firsts = equal_columns(rows.astype(np.int64))
        return Network(
            class_of.astype(np.uint8),
            np.ascontiguousarray(rows[:, firsts]),
            call_transitions,
            np.concatenate([accepting for _, _, accepting in tables]),
            offsets[0],
            self.start in self.nullable,
        )


def _entries(table: NDArray[np.int32]) -> Iterator[tuple[int, int, int]]:
    """The row, column and value of each entry that is not dead."""
    rows, columns = np.nonzero(table >= 0)
    return zip(rows.tolist(), columns.tolist(), table[rows, columns].tolist(), strict=True)

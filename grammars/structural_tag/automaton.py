"""The automaton of a structural tag, in which JSON values may be read by contexts of their own.

Most JSON values stand where the text has only one reading: after ``<tool_call>``, say. There the
lexeme ends, and the value's own contexts follow (see ``contexts.py``), with JSON's fast masks.
Elsewhere (two schemas as alternatives, a number before a digit) a value's position is one more
configuration among others, followed byte by byte.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ramet.grammars.ebnf.automaton import ACCEPT, Configuration, GrammarAutomaton
from ramet.grammars.ebnf.network import Network, foreign_node
from ramet.grammars.json_schema.solver.frames import Top
from ramet.grammars.limits import CompileLimits
from ramet.grammars.pushdown.parser_stack import BYTE_SPANS, BYTES, Frozen, ParserStack
from ramet.grammars.pushdown.pushdown_table import PushdownTable
from ramet.grammars.pushdown.rows import ended
from ramet.grammars.pushdown.state_table import StateTable

from .bounded_text import (
    FREE,
    LEAVING,
    TextPosition,
    first_phase,
    may_end,
    phase_of,
    transitions_of,
)
from .expressions import BoundedText, Foreign, JsonValue, SpecialToken

_NUMBER_BYTES = sum(1 << byte for byte in b"+-.0123456789Ee")


Counts = tuple[tuple[int, int], ...]
"""By text with bounds on its tokens, how many have begun in it."""


@dataclass(frozen=True)
class ValueExit:
    """A JSON value begins, and nothing else can; ``stack`` is where the network continues."""

    index: int
    stack: int


@dataclass(frozen=True)
class BorderExit:
    """In this state the text may end, or a special token or a JSON value may follow."""

    state: int


@dataclass(frozen=True)
class _Position:
    """A place inside the ``index``-th foreign thing, a JSON value, in that value's own pushdown."""

    index: int
    frozen: Frozen


class TagAutomaton(GrammarAutomaton):
    """The lazily determinised automaton of a structural tag.

    Attributes:
        foreign: the parts of the network's foreign nodes.
        exits: by label, how a lexeme of this automaton ends.
        counts_tokens: whether anything in it has bounds on its tokens.
        states_by_number: this automaton's states by the state table's number.
    """

    def __init__(self, network: Network, foreign: list[Foreign], limits: CompileLimits) -> None:
        self.foreign = foreign
        self.exits: list[ValueExit | BorderExit] = []
        self.counts_tokens = any(isinstance(thing, BoundedText) for thing in foreign)
        self._limits = limits
        self._labels: dict[ValueExit | BorderExit, int] = {}
        self._machines: dict[int, PushdownTable] = {}
        self._positions: list[_Position | TextPosition] = []
        self._position_nodes: dict[_Position | TextPosition, int] = {}
        self.states_by_number: dict[int, int] = {}
        self._recounted: dict[tuple[int, tuple[tuple[int, int], ...]], int] = {}
        self._position_moves: dict[int, list[tuple[int, int]]] = {}
        super().__init__(network, len(foreign))

    @property
    def key(self) -> Hashable:
        # Not the network's content: the foreign things have none to compare.
        return self

    # -- what contexts need -----------------------------------------------------------------

    def row_with_exits(self, state: int) -> NDArray[np.int32]:
        """A state's row, in which a byte before a value that is alone ends the lexeme.

        The bytes that begin the state's own ``value_at`` are left out.
        """
        row = self.row(self._without_value(state))
        for target in set(row.tolist()):
            alone = self._value_alone(target) if target >= 0 else None
            if alone is not None:
                row[row == target] = ended(self._label(alone))
        return row

    def border_label(self, state: int) -> int:
        """The label with which a lexeme may end in this state; -1 if it may not."""
        if self.is_accepting(state) or self.offers_special(state) or self.value_at(state):
            return self._label(BorderExit(state))
        return -1

    def value_at(self, state: int) -> ValueExit | None:
        """The JSON value that may begin in a state and is distinguished from all else by its first
        byte.

        None where the text may also end: a context can't be both an end and the start of a value.
        """
        configurations = self.configurations(state)
        if ACCEPT in configurations:
            return None
        values = [c for c in configurations if self._begins_value(c)]
        if len(values) != 1:
            return None
        (value,) = values
        first = self._first_bytes(frozenset(values))
        if first & self._first_bytes(configurations.difference(values)):
            return None
        node, stack = value
        if first & _NUMBER_BYTES and self._first_bytes(self.returned(stack)) & _NUMBER_BYTES:
            return None  # Only the text itself would show where a number ends.
        return ValueExit(foreign_node(node), stack)

    def _value_alone(self, state: int) -> ValueExit | None:
        configurations = self.configurations(state)
        if len(configurations) == 1 and all(map(self._begins_value, configurations)):
            return self.value_at(state)
        return None

    def _without_value(self, state: int) -> int:
        value = self.value_at(state)
        if value is None:
            return state
        without = self.configurations(state) - {(foreign_node(value.index), value.stack)}
        return self.intern(without)

    def _begins_value(self, configuration: Configuration) -> bool:
        index = foreign_node(configuration[0])  # Its own inverse.
        return 0 <= index < len(self.foreign) and isinstance(self.foreign[index], JsonValue)

    def offers_special(self, state: int) -> bool:
        """Whether a special token may come next."""
        return bool(self.after_special(state))

    def after_special(self, state: int) -> dict[int, frozenset[Configuration]]:
        """By special token that may come next, the configurations after it."""
        found: dict[int, frozenset[Configuration]] = {}
        for node, stack in self.configurations(state):
            index = foreign_node(node)
            if 0 <= index < len(self.foreign):
                thing = self.foreign[index]
                if isinstance(thing, SpecialToken):
                    known = found.get(thing.token_id, frozenset())
                    found[thing.token_id] = known | self.returned(stack)
        return found

    # -- bounds on tokens -------------------------------------------------------------------

    def recounted(self, state: int, counts: Counts, *, by_bytes: bool) -> tuple[int, Counts]:
        """A state at a token's beginning, and how many tokens have begun in each open text.

        Args:
            state: as the bytes of the last token have left it.
            counts: of the texts that were open before that token.
            by_bytes: the last token wasn't one, but bytes of any number of tokens.
        """
        open_texts = sorted({p.index for p in map(self._text_at, self.configurations(state)) if p})
        if not open_texts:
            return state, ()
        before = dict(counts)
        after = tuple(
            (index, before[index] + (not by_bytes) if index in before else 0)
            for index in open_texts
        )
        phases = tuple(
            (index, FREE if by_bytes else phase_of(self._text(index), n)) for index, n in after
        )
        known = self._recounted.get((state, phases))
        if known is None:
            known = self._recounted[state, phases] = self._in_phases(state, dict(phases))
        return known, after

    def num_lacking(self, index: int, count: int) -> int:
        """How many more tokens must begin in a text in which ``count`` have begun."""
        return max(0, self._text(index).min_tokens - count)

    def _in_phases(self, state: int, phases: dict[int, int]) -> int:
        found: set[Configuration] = set()
        for configuration in self.configurations(state):
            place = self._text_at(configuration)
            if place is None:
                found.add(configuration)
            else:
                phase = phases[place.index]
                has_begun = foreign_node(configuration[0]) >= len(self.foreign)
                if phase == FREE and not has_begun and self._text(place.index).min_tokens:
                    phase = LEAVING  # However many tokens there were, none was in this text.
                node = self._position_node(TextPosition(place.index, place.state, phase))
                found |= self.closure((node, configuration[1]))
        return self.intern(found)

    def _text(self, index: int) -> BoundedText:
        text = self.foreign[index]
        assert isinstance(text, BoundedText)
        return text

    def _text_at(self, configuration: Configuration) -> TextPosition | None:
        """The place in a text with bounds that a configuration is at, if it is in one."""
        index = foreign_node(configuration[0])
        if 0 <= index < len(self.foreign):
            text = self.foreign[index]
            if isinstance(text, BoundedText):
                return TextPosition(index, text.dfa.start, first_phase(text))
        elif index >= len(self.foreign):
            place = self._positions[index - len(self.foreign)]
            return place if isinstance(place, TextPosition) else None
        return None

    def _label(self, exit_: ValueExit | BorderExit) -> int:
        label = self._labels.get(exit_)
        if label is None:
            label = self._labels[exit_] = len(self.exits)
            self.exits.append(exit_)
        return label

    def _first_bytes(self, configurations: frozenset[Configuration]) -> int:
        first = 0
        for node, _ in configurations:
            for found, _ in self._byte_transitions(node):
                first |= found
        return first

    # -- JSON values among other readings ---------------------------------------------------

    def _byte_transitions(self, node: int) -> list[tuple[int, int]]:
        if node >= 0:
            return super()._byte_transitions(node)
        if node == ACCEPT[0]:
            return []
        known = self._position_moves.get(node)
        if known is None:
            place = self._text_at((node, 0))
            if place is None:
                known = self._value_moves(node)
            else:
                transitions = transitions_of(self._text(place.index).dfa, place)
                known = [(found, self._position_node(target)) for found, target in transitions]
            self._position_moves[node] = known
        return known

    def _value_moves(self, node: int) -> list[tuple[int, int]]:
        index = foreign_node(node)
        if index < len(self.foreign):
            if isinstance(self.foreign[index], SpecialToken):
                return []
            position = self._first_position(index)
        else:
            place = self._positions[index - len(self.foreign)]
            assert isinstance(place, _Position)
            position = place
        pushdown = self._pushdown(position.index)
        transitions: dict[int, int] = {}
        before = ParserStack.thaw(position.frozen, 1)
        for byte in range(256):
            if pushdown.advance(before, BYTES, BYTE_SPANS, byte):
                after = before.copy()
                after.step()
                target = self._position_node(_Position(position.index, pushdown.frozen(after)))
                transitions[target] = transitions.get(target, 0) | 1 << byte
        return [(found, target) for target, found in transitions.items()]

    def _position_node(self, position: _Position | TextPosition) -> int:
        node = self._position_nodes.get(position)
        if node is None:
            index = len(self.foreign) + len(self._positions)
            node = self._position_nodes[position] = foreign_node(index)
            self._positions.append(position)
            self._readings.add_foreign(index, may_end=self._may_end(position))
        return node

    def _may_end(self, position: _Position | TextPosition) -> bool:
        if isinstance(position, TextPosition):
            return may_end(self._text(position.index).dfa, position)
        pushdown = self._pushdown(position.index)
        return pushdown.is_accepting(ParserStack.thaw(position.frozen, 1))

    def _pushdown(self, index: int) -> PushdownTable:
        if index not in self._machines:
            state_table = StateTable(self._limits.max_states)
            self._machines[index] = PushdownTable(self._limits, state_table)
        return self._machines[index]

    def _first_position(self, index: int) -> _Position:
        thing = self.foreign[index]
        assert isinstance(thing, JsonValue)
        pushdown = self._pushdown(index)
        context = pushdown.intern(thing.schema.value(Top(thing.layout), (b"",)))
        return _Position(index, pushdown.frozen(ParserStack(pushdown.first_position(context), 1)))

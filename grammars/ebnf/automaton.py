"""A context-free grammar as a lazily determinised byte automaton.

A configuration is (node of the network, stack of the nodes to return to). A state is the set of
all configurations that a text can be in, so ambiguity needs no choice. Stacks are cells of a
shared tree, and sets are interned: equal states are one state.

Two equivalences keep stacks short. Returns to a node where nothing can follow are dropped (tail
calls: right recursion uses no stack). And where a node's language is closed under repetition, as in
``term ("+" term)*``, two returns to it in a row equal one (so ambiguous expression grammars have
finitely many states at each depth of brackets).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from .bounded_equality import equal_within
from .network import Network, foreign_node
from .reading_loops import ACCEPT_NODE
from .readings import Readings
from .shortest_texts import ShortestTexts

_EMPTY = 0
"""The empty stack."""

ACCEPT = (ACCEPT_NODE, _EMPTY)
"""The configuration of a text that is complete."""

Configuration = tuple[int, int]


class GrammarAutomaton:
    """The lazily determinised automaton of a network.

    Every state but the dead one can be completed, because every node of the network can.
    """

    def __init__(self, network: Network, num_foreign: int = 0) -> None:
        """``num_foreign`` parts are called as foreign nodes; none of them is empty."""
        self._network = network
        self._equal_nodes: NDArray[np.int32] | None = None
        self._equal_bytes = -1
        self._equal_stacks: dict[int, int] = {}
        self._equal_states: NDArray[np.int32] = np.empty(0, np.int32)
        self._readings = Readings(network, _loop_nodes(network), num_foreign)
        first = self.closure((network.start, _EMPTY)) if network.num_nodes else frozenset()
        self._start = self.intern(first | {ACCEPT} if network.is_nullable else first)

    @property
    def key(self) -> Hashable:
        return ("grammar", self._network.key)

    @property
    def start(self) -> int:
        return self._start

    def is_accepting(self, state: int) -> bool:
        return self._readings.accepts(state)

    def row(self, state: int) -> NDArray[np.int32]:
        """int32[256]: the next state for each byte, -1 where there is none.

        Raises:
            GrammarTooComplexError: a text with more simultaneous readings than are kept.
        """
        while True:
            found = self._readings.row(state)
            if not isinstance(found, int):
                return found
            transitions = [
                (byte_mask(bits), target) for bits, target in self._byte_transitions(found)
            ]
            self._readings.set_transitions(foreign_node(found), transitions)

    def shortest_completion(self, state: int) -> bytes:
        """A shortest text that is accepted from a state; nothing foreign may be left to read."""
        if self.is_accepting(state):
            return b""
        texts = self._shortest_texts
        best = min(self.configurations(state), key=lambda found: self._length(*found))
        node, stack = best
        text = bytearray()
        while node != ACCEPT_NODE:
            text += texts.text(node)
            node, stack = self._readings.returns_to(stack)
        return bytes(text)

    def _length(self, node: int, stack: int) -> int:
        length = 0
        while node != ACCEPT_NODE:
            length += self._shortest_texts.length(node)
            node, stack = self._readings.returns_to(stack)
        return length

    @cached_property
    def _shortest_texts(self) -> ShortestTexts:
        return ShortestTexts(self._network)

    def has_equal_states(self, num_bytes: int) -> bool:
        """Whether texts of at most ``num_bytes`` don't distinguish all nodes."""
        if self._equal_bytes != num_bytes:
            self._equal_nodes, self._equal_bytes = equal_within(self._network, num_bytes), num_bytes
            self._equal_stacks = {_EMPTY: _EMPTY}
            self._equal_states = np.empty(0, np.int32)
        return self._equal_nodes is not None

    def equal_states(self, states: NDArray[np.int32]) -> NDArray[np.int32]:
        """By state, a representative of all states with the same texts of ``num_bytes``."""
        most = int(states.max(initial=0))
        if most >= len(self._equal_states):
            longer = np.full(2 * most + 64, -1, np.int32)
            longer[: len(self._equal_states)] = self._equal_states
            self._equal_states = longer
        found = self._equal_states[states]
        for state in np.unique(states[found < 0]).tolist():
            members = self._readings.members(state)
            equal = {(self._equal_node(node), self._equal_stack(stack)) for node, stack in members}
            is_same = equal == set(members)
            self._equal_states[state] = state if is_same else self.intern(equal)
        return self._equal_states[states]

    def _equal_node(self, node: int) -> int:
        assert self._equal_nodes is not None
        return int(self._equal_nodes[node]) if node >= 0 else node

    def _equal_stack(self, stack: int) -> int:
        open_stacks = []
        while stack not in self._equal_stacks:
            open_stacks.append(stack)
            stack = self._readings.returns_to(stack)[1]
        found = self._equal_stacks[stack]
        for above in reversed(open_stacks):
            node = self._equal_node(self._readings.returns_to(above)[0])
            found = self._equal_stacks[above] = self._readings.stack(node, found)
        return found

    def configurations(self, state: int) -> frozenset[Configuration]:
        """The readings of the texts that lead to a state."""
        return frozenset(self._readings.members(state))

    def intern(self, configurations: Collection[Configuration]) -> int:
        """The number of a state."""
        readings = self._readings
        return readings.set_of([readings.configuration(*c) for c in configurations])

    def closure(self, configuration: Configuration) -> frozenset[Configuration]:
        """A configuration's closure: calls entered and ended rules left before its next byte."""
        if configuration == ACCEPT:
            return frozenset((ACCEPT,))
        return frozenset(self._readings.close(*configuration))

    def returned(self, stack: int) -> frozenset[Configuration]:
        """The configurations once what is above a stack has ended."""
        return self.closure(self._readings.returns_to(stack))

    def _byte_transitions(self, node: int) -> list[tuple[int, int]]:
        """A node's (set of bytes, next node) pairs."""
        return self._network.byte_moves(node) if node >= 0 else []


@lru_cache(maxsize=4096)
def byte_mask(found: int) -> NDArray[np.bool_]:
    """A set of bytes, 256 bits, as bool[256]."""
    bits = np.frombuffer(found.to_bytes(32, "little"), np.uint8)
    mask = np.unpackbits(bits, bitorder="little").astype(np.bool_)
    mask.setflags(write=False)
    return mask


def _loop_nodes(network: Network) -> frozenset[int]:
    """The final nodes from which no other final node can be reached.

    Each rule's automaton is minimal, so every way on from such a node comes back to it: what may
    follow it is a repetition of something.
    """
    after = [
        {t for t in row if t >= 0}.union(t for _, t in calls)
        for row, calls in zip(network.table.tolist(), network.call_transitions, strict=True)
    ]
    is_final: list[bool] = network.is_final.tolist()
    finals = [n for n, final in enumerate(is_final) if final]
    loops = set()
    for node in finals:
        seen = set(after[node])
        queue = list(seen)
        while queue:
            at = queue.pop()
            if is_final[at] and at != node:
                break
            for target in after[at] - seen:
                seen.add(target)
                queue.append(target)
        else:
            if after[node]:
                loops.add(node)
    return frozenset(loops)

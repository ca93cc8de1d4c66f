"""A grammar as a deterministic byte automaton, made as it is read.

A configuration is (node of the network, stack of the nodes to return to). A state is the set of
all configurations that a text can be in, so ambiguity needs no choice. Stacks are cells of a
shared tree, and sets are interned: equal states are one state.

Two equalities keep stacks short. A return to a node where nothing can follow is no return at all
(so right recursion uses no stack). And where a node's language is closed under repetition, as in
``term ("+" term)*``, returning to it twice in a row is returning once (so ambiguous expression
grammars have finitely many states at each depth of brackets).
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ramet.grammars.errors import GrammarTooComplexError

from .network import Network

_EMPTY = 0
"""The empty stack."""

ACCEPT = (-1, _EMPTY)
"""The configuration of a text that is complete."""

_MAX_CONFIGURATIONS = 20_000

Configuration = tuple[int, int]

_Part = tuple[int, tuple[tuple[int, int], ...]]
"""A set of bytes, 256 bits, and the targets that they lead to, each with its source's index."""


class GrammarAutomaton:
    """The lazily determinised automaton of a network.

    Every state but the dead one can be completed, because every node of the network can.
    """

    def __init__(self, network: Network) -> None:
        self._network = network
        self._loops = _loop_nodes(network)
        # A stack's node to return to and the rest; returning from the empty one is acceptance.
        self._cells: list[Configuration] = [ACCEPT]
        self._cell_ids: dict[tuple[int, int], int] = {}
        self._states: list[frozenset[Configuration]] = []
        self._state_ids: dict[frozenset[Configuration], int] = {}
        self._partitions: dict[tuple[int, ...], list[_Part]] = {}
        self._closures: dict[Configuration, frozenset[Configuration]] = {}
        first = self._closure((network.start, _EMPTY)) if network.is_final else frozenset()
        self._start = self._intern(first | {ACCEPT} if network.is_nullable else first)
        self._key = hashlib.blake2b(repr(network).encode()).digest()

    @property
    def key(self) -> Hashable:
        return ("grammar", self._key)

    @property
    def start(self) -> int:
        return self._start

    def is_accepting(self, state: int) -> bool:
        return ACCEPT in self._states[state]

    def configurations(self, state: int) -> frozenset[Configuration]:
        """The readings of the texts that lead to a state."""
        return self._states[state]

    def row(self, state: int) -> NDArray[np.int32]:
        """int32[256]: the next state for each byte, -1 where there is none.

        Raises:
            GrammarTooComplexError: a text with more readings than can be kept at once.
        """
        row = np.full(256, -1, np.int32)
        for found, configurations in self._moves(self._states[state]):
            row[byte_mask(found)] = self._intern(configurations)
        return row

    def _moves(
        self, configurations: frozenset[Configuration]
    ) -> list[tuple[int, frozenset[Configuration]]]:
        """Disjoint sets of bytes (256 bits) and the configurations after any of them."""
        ordered = sorted(configurations)
        nodes = tuple(node for node, _ in ordered)
        parts = self._partitions.get(nodes)
        if parts is None:
            parts = self._partitions[nodes] = self._partition(nodes)
        moves = []
        for found, after in parts:
            merged = frozenset[Configuration]().union(
                *(self._closure((target, ordered[i][1])) for target, i in after)
            )
            if len(merged) > _MAX_CONFIGURATIONS:
                raise GrammarTooComplexError("", "ebnf", "the text has too many readings")
            moves.append((found, merged))
        return moves

    def _partition(self, nodes: tuple[int, ...]) -> list[_Part]:
        """Sets of bytes that lead all nodes to the same targets, whatever the stacks are."""
        parts: list[_Part] = []
        for i, node in enumerate(nodes):
            for found, target in self._byte_moves(node):
                rest, split = found, []
                for known, after in parts:
                    both = known & rest
                    if not both:
                        split.append((known, after))
                        continue
                    split.append((both, (*after, (target, i))))
                    if known != both:
                        split.append((known & ~both, after))
                    rest &= ~both
                if rest:
                    split.append((rest, ((target, i),)))
                parts = split
        return parts

    def _byte_moves(self, node: int) -> list[tuple[int, int]]:
        """A node's (set of bytes, next node) pairs."""
        return self._network.byte_moves[node] if node >= 0 else []

    def _intern(self, configurations: frozenset[Configuration]) -> int:
        number = self._state_ids.get(configurations)
        if number is None:
            number = self._state_ids[configurations] = len(self._states)
            self._states.append(configurations)
        return number

    def _push(self, node: int, stack: int) -> int:
        """The stack that returns to ``node`` first."""
        if self._network.is_final[node]:
            if not self._network.byte_moves[node] and not self._network.call_moves[node]:
                return stack
            if node in self._loops and self._cells[stack][0] == node:
                return stack
        cell = (node, stack)
        number = self._cell_ids.get(cell)
        if number is None:
            number = self._cell_ids[cell] = len(self._cells)
            self._cells.append(cell)
        return number

    def _closure(self, configuration: Configuration) -> frozenset[Configuration]:
        """What a configuration is before its next byte: calls entered, ended rules left."""
        known = self._closures.get(configuration)
        if known is not None:
            return known
        network = self._network
        seen = {configuration}
        queue = [configuration]
        found: set[Configuration] = set()
        for node, stack in queue:  # Grows on the way.
            if node < 0:
                found.add((node, stack))
                after = [self._cells[stack]] if self._may_end(node) else []
            elif node in self._loops and self._cells[stack][0] == node:
                after = [(node, self._cells[stack][1])]
            else:
                if network.byte_moves[node]:
                    found.add((node, stack))
                after = [
                    (entry, self._push(back, stack)) for entry, back in network.call_moves[node]
                ]
                if network.is_final[node]:
                    after.append(self._cells[stack])
            for new in after:
                if new == ACCEPT:
                    found.add(ACCEPT)
                elif new not in seen:
                    seen.add(new)
                    queue.append(new)
            if len(seen) > _MAX_CONFIGURATIONS:
                raise GrammarTooComplexError("", "ebnf", "the text has too many readings")
        result = self._closures[configuration] = frozenset(found)
        return result

    def _may_end(self, node: int) -> bool:  # noqa: ARG002
        """Whether something foreign may end here; no network of rules alone has any."""
        return False


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
        {t for _, t in (*network.byte_moves[n], *network.call_moves[n])}
        for n in range(len(network.is_final))
    ]
    before: list[set[int]] = [set() for _ in after]
    for node, targets in enumerate(after):
        for target in targets:
            before[target].add(node)
    finals = [n for n, final in enumerate(network.is_final) if final]
    loops = set()
    for node in finals:
        seen = set(after[node])
        queue = list(seen)
        while queue:
            at = queue.pop()
            if network.is_final[at] and at != node:
                break
            for target in after[at] - seen:
                seen.add(target)
                queue.append(target)
        else:
            if after[node]:
                loops.add(node)
    return frozenset(loops)

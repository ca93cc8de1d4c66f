"""The shortest texts with which a grammar's rules end, from any node of its network."""

from __future__ import annotations

import heapq
from collections import defaultdict

import numpy as np

from .network import Network

_UNKNOWN = 1 << 60


class ShortestTexts:
    """By node, the length of a shortest text that ends the node's rule, and that text.

    Found in order of length (Knuth, 1977: *A generalization of Dijkstra's algorithm*): a node's
    length is 0 where its rule may end, 1 + the next node's over a byte, or the sum of the called
    rule's and of the node's after a call.
    """

    def __init__(self, network: Network) -> None:
        self._lengths = [_UNKNOWN] * network.num_nodes
        self._transitions: list[tuple[int, int]] = [(-1, -1)] * network.num_nodes
        """(byte, next node), or (-2 - called node, node after it), or (-1, -1) at the end."""
        self._find(network)

    def _find(self, network: Network) -> None:
        lengths = self._lengths
        over_bytes: dict[int, list[tuple[int, int]]] = defaultdict(list)
        calling: dict[int, list[tuple[int, int]]] = defaultdict(list)
        returning: dict[int, list[tuple[int, int]]] = defaultdict(list)
        byte_of = _first_bytes(network)
        for node, row in enumerate(network.table.tolist()):
            for symbol, target in enumerate(row):
                if target >= 0 and symbol in byte_of:
                    over_bytes[target].append((node, byte_of[symbol]))
            for called, after in network.call_transitions[node]:
                calling[called].append((node, after))
                returning[after].append((node, called))
        queue = [(0, int(node), (-1, -1)) for node in np.flatnonzero(network.is_final)]
        heapq.heapify(queue)
        while queue:
            length, node, transition = heapq.heappop(queue)
            if lengths[node] <= length:
                continue
            lengths[node], self._transitions[node] = length, transition
            for before, byte in over_bytes[node]:
                heapq.heappush(queue, (length + 1, before, (byte, node)))
            for before, after in calling[node]:
                if lengths[after] < _UNKNOWN:
                    heapq.heappush(queue, (length + lengths[after], before, (-2 - node, after)))
            for before, called in returning[node]:
                if called >= 0 and lengths[called] < _UNKNOWN:
                    heapq.heappush(queue, (length + lengths[called], before, (-2 - called, node)))

    def length(self, node: int) -> int:
        """The length in bytes of a shortest text that ends the node's rule."""
        return self._lengths[node]

    def text(self, node: int) -> bytes:
        """A shortest text that ends the node's rule."""
        found = bytearray()
        stack = [node]
        while stack:
            first, target = self._transitions[stack.pop()]
            if first >= 0:
                found.append(first)
                stack.append(target)
            elif first < -1:
                stack += [target, -2 - first]
        return bytes(found)


def _first_bytes(network: Network) -> dict[int, int]:
    """By class of bytes, a byte of it: a letter or digit if there is one."""
    found: dict[int, int] = {}
    for byte in sorted(range(256), key=lambda b: (b > 127 or not chr(b).isalnum(), b)):
        found.setdefault(int(network.class_of[byte]), byte)
    return found

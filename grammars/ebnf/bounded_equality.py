"""Nodes of a network that no short text distinguishes: the middle of a long counted repetition.

Moore's partition refinement, stopped after one round for each byte of the longest token. A call
consumes at least one byte, so nodes of one class allow the same tokens.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .network import Network


def equal_within(network: Network, num_bytes: int) -> NDArray[np.int32] | None:
    """By node, the first node that no text of ``num_bytes`` distinguishes from it; None: itself.

    Only nodes with calls are compared, so there are none unless a rule has more of them than that.
    """
    calls = network.call_transitions
    callers = np.array([n for n, found in enumerate(calls) if found], np.int64)
    if len(callers) <= num_bytes:
        return None
    num_calls = max(len(calls[n]) for n in callers)
    classes = np.arange(network.num_nodes, dtype=np.int64)
    initial: dict[object, int] = {}
    targets = np.full((len(callers), num_calls), -1, np.int64)
    for i, node in enumerate(callers.tolist()):
        found = sorted(calls[node])
        targets[i, : len(found)] = [target for _, target in found]
        entries = tuple(entry for entry, _ in found)
        key = bool(network.is_final[node]), network.table[node].tobytes(), entries
        classes[node] = initial.setdefault(key, node)
    numbers = classes[callers]
    for _ in range(num_bytes):
        num_classes = len(np.unique(numbers))
        after = np.where(targets >= 0, classes[targets], -1)
        for column in after.T:
            _, numbers = np.unique(
                numbers * (network.num_nodes + 1) + column + 1, return_inverse=True
            )
        _, firsts, numbers = np.unique(numbers, return_index=True, return_inverse=True)
        classes[callers] = callers[firsts][numbers]
        if len(firsts) == num_classes:
            break
    if len(np.unique(numbers)) == len(callers):
        return None
    return classes.astype(np.int32)

"""The tree of a vocabulary's tokens, flat and depth first, as the mask walk reads it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ramet.jit import jit

BYTE, SKIP, TOKEN, DEPTH = range(4)
"""Columns of a trie: the node's byte, the first node after its subtree, the id of the token that
ends here (or -1), and the node's depth (0 for a token's first byte)."""


@jit("int32[:,::1](uint8[::1], int64[::1], int64[::1], int32[::1])")
def build_trie(data, begins, ends, ids):  # type: ignore[no-untyped-def]
    """The trie of sorted, distinct, non-empty texts.

    ``data[begins[i]:ends[i]]`` is the token ``ids[i]``.

    Returns:
        int32[num_nodes, 4], depth first.
    """
    num_tokens = ids.shape[0]
    total = 0
    for i in range(num_tokens):
        begin, end = begins[i], ends[i]
        common = 0
        if i > 0:
            before = begins[i - 1]
            limit = min(end - begin, ends[i - 1] - before)
            while common < limit and data[before + common] == data[begin + common]:
                common += 1
        total += (end - begin) - common
    trie = np.empty((total, 4), np.int32)
    path = np.empty(65536, np.int32)
    depth = 0
    node = 0
    for i in range(num_tokens):
        begin, end = begins[i], ends[i]
        common = 0
        if i > 0:
            before = begins[i - 1]
            limit = min(end - begin, ends[i - 1] - before)
            while common < limit and data[before + common] == data[begin + common]:
                common += 1
        while depth > common:
            depth -= 1
            trie[path[depth], 1] = node
        for at in range(common, end - begin):
            trie[node, 0] = data[begin + at]
            trie[node, 1] = 0
            trie[node, 2] = -1
            trie[node, 3] = at
            path[at] = node
            node += 1
        depth = end - begin
        trie[node - 1, 2] = ids[i]
    while depth > 0:
        depth -= 1
        trie[path[depth], 1] = node
    return trie


@jit("int32[::1](uint8[::1], int64[::1], int32[:,::1])")
def characters_inside(data, starts, table):  # type: ignore[no-untyped-def]
    """The effect of each text on a JSON string that is at a border between two characters.

    ``table`` is a string body (see ``json_text.py``).

    Returns:
        int32[num_texts]: the characters that the text begins if it stays inside the string, -1
        if it closes the string on the way, -2 if it can't stand there.
    """
    counts = np.empty(starts.shape[0] - 1, np.int32)
    for i in range(counts.shape[0]):
        state = 0
        count = 0
        for at in range(starts[i], starts[i + 1]):
            if state == 0:
                if data[at] == 0x22:
                    count = -1
                    break
                count += 1
            state = table[state, data[at]]
            if state < 0:
                count = -2
                break
        counts[i] = count
    return counts


@jit("int32[::1](uint8[::1], int64[::1], int32[:,::1])")
def characters_of(data, starts, table):  # type: ignore[no-untyped-def]
    """The characters of each text that an automaton allows whole, -1 for others.

    State 0 of the automaton is its start and the border between characters.
    """
    counts = np.empty(starts.shape[0] - 1, np.int32)
    for i in range(counts.shape[0]):
        state = 0
        count = 0
        for at in range(starts[i], starts[i + 1]):
            state = table[state, data[at]]
            if state < 0:
                break
            if state == 0:
                count += 1
        counts[i] = count if state == 0 else -1
    return counts


def pack(texts: list[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Texts end to end, and where each starts (one more entry for the end)."""
    data = np.frombuffer(bytearray().join(texts), np.uint8)
    starts = np.zeros(len(texts) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)), out=starts[1:])
    return data, starts


def roots_of(trie: NDArray[np.int32]) -> NDArray[np.int32]:
    """int32[n, 6]: the whole trie as a table of roots (see ``survey.ROOT_BYTE``)."""
    found = []
    node = 0
    while node < len(trie):
        after = int(trie[node, SKIP])
        found.append((int(trie[node, BYTE]), node, after, -1, -1, 0))
        node = after
    return np.array(found, np.int32).reshape(-1, 6)


@jit("int32[::1](int32[:,::1], int64)")
def leaves_of(trie, num_tokens):  # type: ignore[no-untyped-def]
    """int32[num_tokens]: the node at which each token ends; -1 if it isn't in the trie."""
    leaves = np.full(num_tokens, -1, np.int32)
    for node in range(trie.shape[0]):
        if trie[node, 2] >= 0:
            leaves[trie[node, 2]] = node
    return leaves


@jit("void(int32[:,::1], int32[:,::1], int32[::1], int32[:,::1])")
def locate(trie, whole, leaves, ends):  # type: ignore[no-untyped-def]
    """Rewrite nodes of a trie, ``ends[:, 0]``, as those of a trie that has its tokens too."""
    for i in range(ends.shape[0]):
        node = ends[i, 0]
        depth = trie[node, 3]
        while trie[node, 2] < 0:
            node += 1
        node = leaves[trie[node, 2]]
        # Depth first, the ancestor is the last node of that depth before.
        while whole[node, 3] > depth:
            node -= 1
        ends[i, 0] = node


@jit(
    "Tuple((int32[:,::1], uint8[::1]))(int32[:,::1], uint8[::1], int64[:,::1], int32[:,::1])",
)
def root_table(trie, data, spans, ends):  # type: ignore[no-untyped-def]
    """Nodes, each with a state and a label, as a table of roots, and the bytes before each."""
    table = np.empty((ends.shape[0], 6), np.int32)
    size = 0
    for i in range(ends.shape[0]):
        size += trie[ends[i, 0], 3]
    prefixes = np.empty(size + 1, np.uint8)
    size = 0
    for i in range(ends.shape[0]):
        node = ends[i, 0]
        table[i, 0], table[i, 1], table[i, 2] = trie[node, 0], node, trie[node, 1]
        table[i, 3], table[i, 4], table[i, 5] = ends[i, 1], ends[i, 2], size
        below = node
        while trie[below, 2] < 0:
            below += 1
        first = spans[trie[below, 2], 0]
        for at in range(trie[node, 3]):
            prefixes[size] = data[first + at]
            size += 1
    return table, prefixes

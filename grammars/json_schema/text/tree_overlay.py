"""Laying a tree of texts over a base: the compiled part of ``LiteralText``."""

from __future__ import annotations

import numpy as np

from ramet.grammars.pushdown.rows import LAZY
from ramet.jit import jit


@jit("void(uint64[:,::1], int64, uint64[::1], int64)")
def _add_words(reach, state, words, offset):  # type: ignore[no-untyped-def]
    """Add the set of labels at an offset of ``words``."""
    for word in range(min(reach.shape[1], np.int64(words[offset]))):
        reach[state, word] |= words[offset + 1 + word]


@jit("void(int32[:,::1], int32[:,::1], uint64[::1], int64, int64, uint64[:,::1])")
def _add_row(rows, states, words, first, state, reach):  # type: ignore[no-untyped-def]
    """Add the labels to which a state's row leads."""
    before = np.int32(-1)
    for b in range(256):
        target = rows[first + state, b]
        if target == before:
            continue
        before = target
        if target >= first and target < first + reach.shape[0]:
            for word in range(reach.shape[1]):
                reach[state, word] |= reach[target - first, word]
        elif target >= 0 and states[target, 2] >= 0:
            _add_words(reach, state, words, states[target, 2])


@jit(
    "int64(int32[:,::1], int64, int32[::1], int32[:,::1], int32[:,::1], uint64[::1], int64, int64,"
    " int32[::1], uint64[:,::1], int32[::1], uint8[:,::1], boolean, boolean)",
)
def lay_over(  # type: ignore[no-untyped-def]
    trie, root, labels, rows, states, words, first, base, closers, reach, bases, escapes, is_exact,
    has_room,
):  # fmt: skip
    """Write the rows of a tree's nodes over those of a base, all of which are written.

    Args:
        trie: of the decoded texts; its tokens index ``labels``.
        root: the token of the empty text, or -1.
        rows, states, words: the state table's; node i has row ``first + 1 + i``, the root
        ``first``.
        base: the base's start state; -1 if there is no base.
        closers: by label, the entry for the closing quote.
        reach: uint64[num_nodes + 1, num_words], zeros; written: the labels reachable from each
            state.
        bases: int32[num_nodes + 1], written: each state's state of the base, or -1.
        escapes: uint8[128, 8]: how the base spells each character that isn't written as it is;
            first the number of bytes.
        is_exact: the base may have no way on but those that the tree takes, so what is reachable
            is seen from the rows.
        has_room: the base's states say how much room they have, and the tree's are like them.

    Returns:
        How many states have an escape to be spelled out when it is met.
    """
    num_nodes, num_words = trie.shape[0], reach.shape[1]
    path = np.zeros(num_nodes + 2, np.int64)
    parents = np.zeros(num_nodes + 1, np.int64)
    bases[0] = base
    byte = 0
    raw = True
    above = first
    num_escapes = 0
    for state in range(num_nodes + 1):
        if state > 0:
            byte = trie[state - 1, 0]
            depth = trie[state - 1, 3]
            path[depth + 1] = state
            parents[state] = path[depth]
            above = first + path[depth]
            below = bases[path[depth]]
            raw = byte >= 0x20 and byte != 0x22 and byte != 0x5C
            if raw:
                below = rows[below, byte] if below >= 0 else -1
            else:
                for i in range(escapes[byte, 0]):
                    below = rows[below, escapes[byte, 1 + i]] if below >= 0 else -1
            bases[state] = max(below, -1)
        own = bases[state]
        for b in range(256):
            rows[first + state, b] = -1 if own < 0 else rows[own, b]
        if own >= 0:
            if has_room:
                for column in range(3, states.shape[1]):
                    states[first + state, column] = states[own, column]
            if not is_exact and states[own, 2] >= 0:
                _add_words(reach, state, words, states[own, 2])
        if state > 0:
            if raw:
                rows[above, byte] = first + state
            if (not raw or byte >= 0xC0 or byte == 0x2F) and rows[above, 0x5C] != LAZY:
                rows[above, 0x5C] = LAZY
                num_escapes += 1
        token = root if state == 0 else trie[state - 1, 2]
        if token >= 0:
            label = labels[token]
            if label < 0:
                rows[first + state, 0x22] = -1
            else:
                rows[first + state, 0x22] = closers[label]
                reach[state, label >> 6] |= np.uint64(1) << np.uint64(label & 63)
    for state in range(num_nodes, -1, -1):
        if is_exact and bases[state] >= 0:
            _add_row(rows, states, words, first, state, reach)
        if state > 0:
            for word in range(num_words):
                reach[parents[state], word] |= reach[state, word]
    return num_escapes

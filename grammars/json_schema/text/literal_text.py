"""Strings some of which have labels of their own: the names of an object, or an enum.

The trie of the given texts is laid over a *base*, the lexeme of all other strings. A state is a
pair of a trie node and the base's state after the same text: its row is the base's, except for
bytes that continue in the trie, and for the closing quote where a given text is complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ramet.grammars.masks.trie import build_trie, pack
from ramet.grammars.pushdown.json_text import KEY_SLICE, spellings
from ramet.grammars.pushdown.rows import DEAD, LAZY, Row
from ramet.grammars.pushdown.state_table import UNBOUNDED_ROOM, StateTable
from ramet.grammars.pushdown.tables import REACH, ROOM

from .text_lexemes import BACKSLASH, QUOTE, Closing, TextLexeme, is_endless
from .tree_overlay import lay_over

_Installed = tuple[NDArray[np.int32], int, NDArray[np.int32]]
"""The tree of the texts, its first state in a state table, and each state's state of the base."""

EXCLUDED = -1
"""In place of a label: this string is not allowed."""


class LiteralText(TextLexeme):
    """Given texts with labels, or ``EXCLUDED``, over a base (None: no other string is allowed).

    A base with given texts must spell as ``KEY_SLICE`` does.
    """

    slice = KEY_SLICE

    def __init__(
        self,
        closing: Closing,
        texts: Mapping[str, int],
        base: TextLexeme | None,
        state_table: StateTable | None = None,
    ) -> None:
        """``state_table``, if given, is the only one this will be for; the key then stays small."""
        self.closing = closing
        self.texts = texts
        self.base = base
        base_key = None if base is None else state_table.install(base) if state_table else base.key
        self.key = ("literals", closing.key, frozenset(texts.items()), base_key)
        if base is None and EXCLUDED in texts.values():
            self.texts = {t: label for t, label in texts.items() if label != EXCLUDED}
        encoded = sorted((t.encode(), t) for t in self.texts)
        self._labels = np.array([self.texts[t] for _, t in encoded], np.int32)
        self._has_empty = bool(encoded) and not encoded[0][0]
        self._encoded = [e for e, _ in encoded]
        self._installed: WeakKeyDictionary[StateTable, _Installed] = WeakKeyDictionary()

    def install(self, state_table: StateTable) -> int:
        ids = np.arange(len(self._encoded), dtype=np.int32)
        skip = int(self._has_empty)
        data, starts = pack(self._encoded[skip:])
        trie = build_trie(data, starts[:-1], starts[1:], ids[skip:])
        num_states = len(trie) + 1
        base = -1 if self.base is None else state_table.install(self.base)
        num_labels = int(self._labels.max(initial=0)) + 1
        closers = self.closing.targets(state_table, num_labels)
        base_bits = self._base_bits(state_table, base)
        num_words = max(1, (max(num_labels, base_bits.bit_length()) + 63) // 64)
        reach = np.zeros((num_states, num_words), np.uint64)
        bases = np.empty(num_states, np.int32)
        first = state_table.new_states(num_states)
        is_exact = self.closing.filtered and base >= 0 and not is_endless(state_table, base)
        if self.base is None or self.base.is_written:
            has_room = base >= 0 and bool(state_table.states[base, ROOM] == UNBOUNDED_ROOM)
            num_escapes = lay_over(
                trie, skip - 1, self._labels, state_table.rows, state_table.states,
                state_table.words, first,
                base, closers, reach, bases, _escapes(), is_exact, has_room,
            )  # fmt: skip
        else:
            self._lay_over_any(state_table, trie, first, base, closers, reach, bases, is_exact)
            num_escapes = num_states
        if self.closing.filtered:
            state_table.states[first : first + num_states, REACH] = state_table.new_bit_sets(reach)
        self._installed[state_table] = trie, first, bases
        if num_escapes:
            parents = _parents(trie) if is_exact else []
            lazy = state_table.rows[first : first + num_states, BACKSLASH] == LAZY
            for i in reversed(np.flatnonzero(lazy).tolist()):
                state_table.has_edges(first + i, self, i)
                if is_exact:
                    self._spell_out(state_table, first + i, first, parents)
        if self.closing.filtered:
            self._drop_dead_ends(state_table, first, reach)
        return first

    def _drop_dead_ends(
        self, state_table: StateTable, first: int, reach: NDArray[np.uint64]
    ) -> None:
        """Let nothing lead to where only strings that are left out would have ended."""
        rows = state_table.rows[first : first + len(reach)]
        for i in np.flatnonzero(~reach.any(axis=1)).tolist():
            if not self._base_bits(state_table, first + i):  # Escapes may have added something.
                rows[rows == first + i] = DEAD

    def _spell_out(
        self, state_table: StateTable, state: int, first: int, parents: list[int]
    ) -> None:
        """Write all of a state's escapes, and note what is reachable by them, here and above."""
        bits = self._base_bits(state_table, state_table.target(state, BACKSLASH))
        while True:
            known = self._base_bits(state_table, state)
            state_table.states[state, REACH] = state_table.bit_set(known | bits)
            if state == first:
                return
            state = first + parents[state - first]

    def _base_bits(self, state_table: StateTable, base: int) -> int:
        if base < 0:
            return 0
        offset = int(state_table.states[base, REACH])
        return state_table.bits_at(offset) if offset >= 0 else 0

    def _lay_over_any(
        self,
        state_table: StateTable,
        trie: NDArray[np.int32],
        first: int,
        base: int,
        closers: NDArray[np.int32],
        reach: NDArray[np.uint64],
        bases: NDArray[np.int32],
        is_exact: bool,
    ) -> None:
        """``lay_over`` for a base whose states are read one by one."""
        parents = _parents(trie)
        bases[:] = -1
        bases[0] = base
        for state in range(len(trie) + 1):
            if state > 0:
                byte = int(trie[state - 1, 0])
                below = int(bases[parents[state]])
                spelled = bytes((byte,)) if byte > 0x7F else spellings(chr(byte))[0]
                for b in spelled:
                    below = state_table.target(below, b) if below >= 0 else DEAD
                bases[state] = max(below, -1)
            own = int(bases[state])
            row = np.full(256, DEAD, np.int32)
            if own >= 0:
                for b in np.flatnonzero(state_table.rows[own] == LAZY).tolist():
                    state_table.target(own, b)
                state_table.target(own, 0)
                for b in np.flatnonzero(state_table.rows[own] == LAZY).tolist():
                    state_table.target(own, b)
                row[:] = state_table.rows[own]
                reach[state] = _words(self._base_bits(state_table, own), reach.shape[1])
            state_table.rows[first + state] = row
            token = int(trie[state - 1, 2]) if state > 0 else int(self._has_empty) - 1
            if token >= 0:
                label = int(self._labels[token])
                state_table.rows[first + state, QUOTE] = DEAD if label < 0 else closers[label]
                if label >= 0:
                    reach[state] |= _words(1 << label, reach.shape[1])
            if state > 0:
                above = first + parents[state]
                raw = byte >= 0x20 and byte not in (QUOTE, BACKSLASH)
                if raw:
                    state_table.rows[above, byte] = first + state
                if not raw or byte >= 0xC0 or byte == 0x2F:
                    state_table.rows[above, BACKSLASH] = LAZY
        if not self.closing.filtered:
            return
        spelled_bits = [0] * (len(trie) + 1)
        for state in range(len(trie), -1, -1):
            row = state_table.rows[first + state]
            bits = spelled_bits[state]
            for target in np.unique(row[row >= 0]).tolist():
                below = target - first
                if 0 <= below < len(reach):
                    bits |= int.from_bytes(reach[below].tobytes(), "little")
                else:
                    bits |= self._base_bits(state_table, target)
            if row[BACKSLASH] == LAZY and bases[state] >= 0 and not is_exact:
                bits |= self._base_bits(state_table, int(bases[state]))
            reach[state] = _words(bits, reach.shape[1])
            spelled_bits[parents[state]] |= bits

    # -- escapes ----------------------------------------------------------------------------

    def edge(self, state_table: StateTable, local: int, byte: int, row: Row) -> None:
        """The backslash's entry: escapes that spell the node's next characters, over the base's."""
        trie, first, bases = self._installed[state_table]
        base = int(bases[local])
        below = DEAD if base < 0 else state_table.target(base, byte)
        tree: dict[int, object] = {}
        for character, node in _next_characters(trie, local):
            for spelling in spellings(character):
                if spelling[0] == BACKSLASH:
                    _spell(tree, spelling[1:], first + node)
        state_table.rows[first + local, byte] = self._escape_state(state_table, tree, below)

    def _escape_state(self, state_table: StateTable, tree: dict[int, object], base: int) -> int:
        """The state for an escape's rest over a base state."""
        if not tree:
            return base
        filtered = self.closing.filtered
        row = np.full(256, DEAD, np.int32)
        if base >= 0:
            state_table.target(base, 0)
            row[:] = state_table.rows[base]
        for byte, rest in tree.items():
            if isinstance(rest, dict):
                below = DEAD if base < 0 else state_table.target(base, byte)
                row[byte] = self._escape_state(state_table, rest, below)
            else:
                assert isinstance(rest, int)
                row[byte] = rest if not filtered or self._base_bits(state_table, rest) else DEAD
        bits = 0
        if filtered:
            for target in {t for t in row.tolist() if t >= 0}:
                bits |= self._base_bits(state_table, target)
            if not bits:
                return DEAD
        state = state_table.new_states(1)
        state_table.rows[state] = row
        if filtered:
            state_table.states[state, REACH] = state_table.bit_set(bits)
        return state


@cache
def _escapes() -> NDArray[np.uint8]:
    """uint8[128, 8]: by ASCII character that isn't written as it is, its first spelling: how many
    bytes, and those."""
    table = np.zeros((128, 8), np.uint8)
    for code in (*range(0x20), QUOTE, BACKSLASH):
        spelling = spellings(chr(code))[0]
        table[code, 0] = len(spelling)
        table[code, 1 : 1 + len(spelling)] = list(spelling)
    return table


def _spell(tree: dict[int, object], escape: bytes, target: int) -> None:
    """Add an escape's rest to a tree of dicts by byte; hexadecimal digits count in either case."""
    hexadecimal = escape[0] == 0x75
    nodes = [tree]
    for at, byte in enumerate(escape):
        either = hexadecimal and 0x61 <= byte <= 0x66
        below: list[dict[int, object]] = []
        for node in nodes:
            for spelled in (byte, byte - 0x20) if either else (byte,):
                if at + 1 == len(escape):
                    node[spelled] = target
                else:
                    rest = node.setdefault(spelled, {})
                    assert isinstance(rest, dict)
                    below.append(rest)
        nodes = below


def _parents(trie: NDArray[np.int32]) -> list[int]:
    """By state (node + 1; 0 is the root), the state above."""
    parents = [0]
    path = [0]
    for node, depth in enumerate(trie[:, 3].tolist()):
        del path[depth + 1 :]
        parents.append(path[depth])
        path.append(node + 1)
    return parents


def _next_characters(trie: NDArray[np.int32], state: int) -> list[tuple[str, int]]:
    """The characters that go on from a state at a border, each with the state after it."""
    found: list[tuple[str, int]] = []

    def descend(state: int, begun: bytes) -> None:
        depth = 0 if state == 0 else int(trie[state - 1, 3]) + 1
        node = state
        end = len(trie) if state == 0 else int(trie[state - 1, 1])
        while node < end:
            assert trie[node, 3] == depth
            text = begun + bytes((int(trie[node, 0]),))
            lead = text[0]
            size = 1 if lead < 0x80 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
            if len(text) == size:
                found.append((text.decode(), node + 1))
            else:
                descend(node + 1, text)
            node = int(trie[node, 1])

    descend(state, b"")
    return found


def _words(bits: int, num_words: int) -> NDArray[np.uint64]:
    return np.frombuffer(bytearray(bits.to_bytes(8 * num_words, "little")), np.uint64)

"""Strings some of which are told apart: the names of an object, an enum, or what was seen before.

The tree of the given texts is laid over a *base*, the lexeme of all other strings. A state is a
node of the tree with the base's state after the same text: its row is the base's, but for the
bytes that go on in the tree, and for the closing quote where a given text is complete.
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
from ramet.grammars.pushdown.state_table import UNBOUNDED_ROOM, Lexicon
from ramet.grammars.pushdown.transitions import REACH, ROOM

from .text_lexemes import BACKSLASH, QUOTE, Closing, TextLexeme, is_endless
from .tree_overlay import lay_over

_Installed = tuple[NDArray[np.int32], int, NDArray[np.int32]]
"""The tree of the texts, its first state in a lexicon, and each state's state of the base."""

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
        lexicon: Lexicon | None = None,
    ) -> None:
        """``lexicon``, if given, is the only one this will be for; the key then stays small."""
        self.closing = closing
        self.texts = texts
        self.base = base
        base_key = None if base is None else lexicon.install(base) if lexicon else base.key
        self.key = ("literals", closing.key, frozenset(texts.items()), base_key)
        if base is None and EXCLUDED in texts.values():
            self.texts = {t: label for t, label in texts.items() if label != EXCLUDED}
        encoded = sorted((t.encode(), t) for t in self.texts)
        self._labels = np.array([self.texts[t] for _, t in encoded], np.int32)
        self._has_empty = bool(encoded) and not encoded[0][0]
        self._encoded = [e for e, _ in encoded]
        self._installed: WeakKeyDictionary[Lexicon, _Installed] = WeakKeyDictionary()

    def install(self, lexicon: Lexicon) -> int:
        ids = np.arange(len(self._encoded), dtype=np.int32)
        skip = int(self._has_empty)
        data, starts = pack(self._encoded[skip:])
        trie = build_trie(data, starts[:-1], starts[1:], ids[skip:])
        num_states = len(trie) + 1
        base = -1 if self.base is None else lexicon.install(self.base)
        num_labels = int(self._labels.max(initial=0)) + 1
        closers = self.closing.targets(lexicon, num_labels)
        base_bits = self._base_bits(lexicon, base)
        num_words = max(1, (max(num_labels, base_bits.bit_length()) + 63) // 64)
        reach = np.zeros((num_states, num_words), np.uint64)
        bases = np.empty(num_states, np.int32)
        first = lexicon.new_states(num_states)
        is_exact = self.closing.filtered and base >= 0 and not is_endless(lexicon, base)
        if self.base is None or self.base.is_written:
            has_room = base >= 0 and bool(lexicon.states[base, ROOM] == UNBOUNDED_ROOM)
            num_escapes = lay_over(
                trie, skip - 1, self._labels, lexicon.rows, lexicon.states, lexicon.words, first,
                base, closers, reach, bases, _escapes(), is_exact, has_room,
            )  # fmt: skip
        else:
            self._lay_over_any(lexicon, trie, first, base, closers, reach, bases, is_exact)
            num_escapes = num_states
        if self.closing.filtered:
            lexicon.states[first : first + num_states, REACH] = lexicon.new_bit_sets(reach)
        self._installed[lexicon] = trie, first, bases
        if num_escapes:
            parents = _parents(trie) if is_exact else []
            lazy = lexicon.rows[first : first + num_states, BACKSLASH] == LAZY
            for i in reversed(np.flatnonzero(lazy).tolist()):
                lexicon.has_edges(first + i, self, i)
                if is_exact:
                    self._spell_out(lexicon, first + i, first, parents)
        if self.closing.filtered:
            self._drop_dead_ends(lexicon, first, reach)
        return first

    def _drop_dead_ends(self, lexicon: Lexicon, first: int, reach: NDArray[np.uint64]) -> None:
        """Let nothing lead to where only strings that are left out would have ended."""
        rows = lexicon.rows[first : first + len(reach)]
        for i in np.flatnonzero(~reach.any(axis=1)).tolist():
            if not self._base_bits(lexicon, first + i):  # Escapes may have added something.
                rows[rows == first + i] = DEAD

    def _spell_out(self, lexicon: Lexicon, state: int, first: int, parents: list[int]) -> None:
        """Spell a state's escapes at once, and note what is reachable by them, here and above."""
        bits = self._base_bits(lexicon, lexicon.target(state, BACKSLASH))
        while True:
            known = self._base_bits(lexicon, state)
            lexicon.states[state, REACH] = lexicon.bit_set(known | bits)
            if state == first:
                return
            state = first + parents[state - first]

    def _base_bits(self, lexicon: Lexicon, base: int) -> int:
        if base < 0:
            return 0
        offset = int(lexicon.states[base, REACH])
        return lexicon.bits_at(offset) if offset >= 0 else 0

    def _lay_over_any(
        self,
        lexicon: Lexicon,
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
                    below = lexicon.target(below, b) if below >= 0 else DEAD
                bases[state] = max(below, -1)
            own = int(bases[state])
            row = np.full(256, DEAD, np.int32)
            if own >= 0:
                for b in np.flatnonzero(lexicon.rows[own] == LAZY).tolist():
                    lexicon.target(own, b)
                lexicon.target(own, 0)
                for b in np.flatnonzero(lexicon.rows[own] == LAZY).tolist():
                    lexicon.target(own, b)
                row[:] = lexicon.rows[own]
                reach[state] = _words(self._base_bits(lexicon, own), reach.shape[1])
            lexicon.rows[first + state] = row
            token = int(trie[state - 1, 2]) if state > 0 else int(self._has_empty) - 1
            if token >= 0:
                label = int(self._labels[token])
                lexicon.rows[first + state, QUOTE] = DEAD if label < 0 else closers[label]
                if label >= 0:
                    reach[state] |= _words(1 << label, reach.shape[1])
            if state > 0:
                above = first + parents[state]
                raw = byte >= 0x20 and byte not in (QUOTE, BACKSLASH)
                if raw:
                    lexicon.rows[above, byte] = first + state
                if not raw or byte >= 0xC0 or byte == 0x2F:
                    lexicon.rows[above, BACKSLASH] = LAZY
        if not self.closing.filtered:
            return
        spelled_bits = [0] * (len(trie) + 1)
        for state in range(len(trie), -1, -1):
            row = lexicon.rows[first + state]
            bits = spelled_bits[state]
            for target in np.unique(row[row >= 0]).tolist():
                below = target - first
                if 0 <= below < len(reach):
                    bits |= int.from_bytes(reach[below].tobytes(), "little")
                else:
                    bits |= self._base_bits(lexicon, target)
            if row[BACKSLASH] == LAZY and bases[state] >= 0 and not is_exact:
                bits |= self._base_bits(lexicon, int(bases[state]))
            reach[state] = _words(bits, reach.shape[1])
            spelled_bits[parents[state]] |= bits

    # -- escapes ----------------------------------------------------------------------------

    def edge(self, lexicon: Lexicon, local: int, byte: int, row: Row) -> None:
        """The backslash's entry: escapes that spell the node's next characters, over the base's."""
        trie, first, bases = self._installed[lexicon]
        base = int(bases[local])
        below = DEAD if base < 0 else lexicon.target(base, byte)
        tree: dict[int, object] = {}
        for character, node in _next_characters(trie, local):
            for spelling in spellings(character):
                if spelling[0] == BACKSLASH:
                    _spell(tree, spelling[1:], first + node)
        lexicon.rows[first + local, byte] = self._escape_state(lexicon, tree, below)

    def _escape_state(self, lexicon: Lexicon, tree: dict[int, object], base: int) -> int:
        """The state for an escape's rest over a base state."""
        if not tree:
            return base
        filtered = self.closing.filtered
        row = np.full(256, DEAD, np.int32)
        if base >= 0:
            lexicon.target(base, 0)
            row[:] = lexicon.rows[base]
        for byte, rest in tree.items():
            if isinstance(rest, dict):
                below = DEAD if base < 0 else lexicon.target(base, byte)
                row[byte] = self._escape_state(lexicon, rest, below)
            else:
                assert isinstance(rest, int)
                row[byte] = rest if not filtered or self._base_bits(lexicon, rest) else DEAD
        bits = 0
        if filtered:
            for target in {t for t in row.tolist() if t >= 0}:
                bits |= self._base_bits(lexicon, target)
            if not bits:
                return DEAD
        state = lexicon.new_states(1)
        lexicon.rows[state] = row
        if filtered:
            lexicon.states[state, REACH] = lexicon.bit_set(bits)
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

"""Long lists of strings: an enum of thousands, or the names of a large closed object."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ramet.grammars.pushdown.json_text import KEY_SLICE, spellings
from ramet.grammars.pushdown.listed_texts import ListedTexts
from ramet.grammars.pushdown.rows import DEAD, Row
from ramet.grammars.pushdown.state_table import StateTable
from ramet.grammars.pushdown.tables import REACH

from .text_lexemes import BACKSLASH, QUOTE, Closing, TextLexeme

_ESCAPE_BITS = 8 * 16
"""A state is a node of the trie and the bytes of an escape that has begun, in so many bits."""

_ESCAPED = frozenset((*range(0x20), QUOTE, BACKSLASH, 0x2F, *range(0xC0, 0x100)))
"""First bytes of characters that may be written as escapes."""


class ListedText(TextLexeme):
    """Given strings with labels. Only the states that a text or a token comes to are made."""

    slice = KEY_SLICE
    has_ends = True

    def __init__(self, closing: Closing, labels: Mapping[str, int]) -> None:
        self.closing = closing
        self._texts = ListedTexts(labels, lambda text: len(spelled(text)))
        self.key = ("listed text", closing.key, self._texts.digest)

    def install(self, state_table: StateTable) -> int:
        start = self._state(state_table, 0, b"")
        state_table.fresh.append(start)
        return start

    def _state(self, state_table: StateTable, node: int, escape: bytes) -> int:
        local = node << _ESCAPE_BITS | int.from_bytes(escape, "big")
        state = state_table.reserve(self, local)
        if self.closing.filtered and state_table.states[state, REACH] < 0:
            bits = 0
            if escape:
                for spelling, after in self._escapes(node):
                    if spelling.startswith(escape):
                        bits |= self._texts.label_bits(after)
            else:
                bits = self._texts.label_bits(node)
            reach = state_table.bit_set(bits)
            state_table.states[state, REACH] = reach
        return state

    def fill(self, state_table: StateTable, local: int, row: Row) -> int:
        node, begun = local >> _ESCAPE_BITS, local & ((1 << _ESCAPE_BITS) - 1)
        row[:] = DEAD
        if begun:
            self._fill_escape(state_table, node, begun.to_bytes(16, "big").lstrip(b"\0"), row)
            return -1
        has_escapes = False
        for byte, after in self._texts.children(node):
            if byte >= 0x20 and byte not in (QUOTE, BACKSLASH):
                row[byte] = self._state(state_table, after, b"")
            has_escapes = has_escapes or byte in _ESCAPED
        if has_escapes:
            row[BACKSLASH] = self._state(state_table, node, b"\\")
        label = self._texts.label(node)
        if label is not None:
            row[QUOTE] = self.closing.target(state_table, label)
        return -1

    def _fill_escape(self, state_table: StateTable, node: int, escape: bytes, row: Row) -> None:
        """The row of a state in an escape; hexadecimal digits count in either case."""
        size = len(escape)
        for spelling, after in self._escapes(node):
            if spelling.startswith(escape) and not row[spelling[size]] >= 0:
                if len(spelling) == size + 1:
                    target = self._state(state_table, after, b"")
                else:
                    target = self._state(state_table, node, spelling[: size + 1])
                byte = spelling[size]
                row[byte] = target
                if spelling[1:2] == b"u" and 0x61 <= byte <= 0x66:
                    row[byte - 0x20] = target

    def _escapes(self, node: int) -> Iterator[tuple[bytes, int]]:
        """The escapes of the characters that may follow, each with the node after it."""
        for character, after in self._characters(node, b""):
            for spelling in spellings(character):
                if spelling[0] == BACKSLASH:
                    yield spelling, after

    def _characters(self, node: int, begun: bytes) -> Iterator[tuple[str, int]]:
        for byte, after in self._texts.children(node):
            if begun or byte in _ESCAPED:
                text = begun + bytes((byte,))
                lead = text[0]
                size = 1 if lead < 0x80 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
                if len(text) == size:
                    yield text.decode(), after
                else:
                    yield from self._characters(after, text)

    def ends(self, local: int) -> list[tuple[bytes, int, bool]] | None:
        node, begun = local >> _ESCAPE_BITS, local & ((1 << _ESCAPE_BITS) - 1)
        if begun or not self.closing.ends_value or not self._texts.is_at_border(node):
            return None
        return [
            (spelled(text) + bytes((QUOTE,)), label, False)
            for text, label in self._texts.shortest(node)
        ]


def spelled(text: bytes) -> bytes:
    """The shortest spelling of a text of UTF-8 in a string body."""
    return b"".join(spellings(character)[0] for character in text.decode())

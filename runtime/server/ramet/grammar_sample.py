"""An example of a text that a grammar accepts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ramet.grammars import Grammar

_MAX_LEN = 2000
_MAX_TRIED = 200_000
_ORDER = b'"}])>' + b"0123456789" + b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_PREFERRED = bytes([*_ORDER, *(byte for byte in range(32, 256) if byte not in _ORDER)]) + bytes(
    range(32)
)
"""Bytes that close things first, then plain ones: a greedy walk in this order ends early in
practice, and as a grammar has no dead ends, each step can always be completed."""


def shortest_looking_match(grammar: Grammar) -> str | None:
    """A short text that matches, not always the shortest; None if none was found in bounds."""
    matcher = grammar.matcher()
    text = bytearray()
    num_tried = 0
    while not matcher.is_accepting:
        forced = matcher.forced_bytes()
        if forced and matcher.accept_bytes(forced):
            text += forced
        else:
            for byte in _PREFERRED:
                num_tried += 1
                if matcher.accept_bytes(bytes([byte])):
                    text.append(byte)
                    break
            else:
                return None
        if len(text) > _MAX_LEN or num_tried > _MAX_TRIED:
            return None
    return text.decode("utf-8", "replace")

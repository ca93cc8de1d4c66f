"""Finds a sample text that a grammar accepts."""

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
"""Closing bytes first, then letters: a greedy walk in this order ends early in practice. Grammars
have no dead ends, so each step can be completed."""


def shortest_looking_match(grammar: Grammar) -> str | None:
    """A short, not always the shortest, match; None if none was found within the limits."""
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

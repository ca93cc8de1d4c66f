"""The printable alphabet in which byte-level vocabularies are written down.

Each of the 256 byte values stands as one character: the printable ones of Latin-1 as themselves,
the others, in order, as the characters from U+0100 on (Radford et al. 2019).
"""

from __future__ import annotations

from collections.abc import Sequence


def _alphabet() -> dict[int, int]:
    """Code point of the written character -> byte value."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: byte for byte in printable} | {0x100 + i: byte for i, byte in enumerate(others)}


_BYTE_OF_CHARACTER = _alphabet()
_CHARACTER_OF_BYTE = {byte: chr(char) for char, byte in _BYTE_OF_CHARACTER.items()}


def decode_alphabet(texts: Sequence[str]) -> list[bytes]:
    """The bytes that each text writes down; ``KeyError`` with a character outside the alphabet."""
    joined = "".join(texts)
    for foreign in set(joined):
        if ord(foreign) not in _BYTE_OF_CHARACTER:
            raise KeyError(foreign)
    # One character is one byte, so the texts' lengths cut the joined bytes.
    data = joined.translate(_BYTE_OF_CHARACTER).encode("latin-1")
    result: list[bytes] = []
    start = 0
    for text in texts:
        end = start + len(text)
        result.append(data[start:end])
        start = end
    return result


def encode_alphabet(data: bytes) -> str:
    """How ``data`` is written down."""
    return "".join(_CHARACTER_OF_BYTE[byte] for byte in data)

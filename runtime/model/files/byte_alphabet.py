"""The printable alphabet in which byte-level vocabularies are written down.

Each of the 256 byte values stands as one character: the printable ones of Latin-1 as themselves,
the others, in order, as the characters from U+0100 on (Radford et al. 2019).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np


def _alphabet() -> dict[int, int]:
    """Code point of the written character -> byte value."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: byte for byte in printable} | {0x100 + i: byte for i, byte in enumerate(others)}


_BYTE_OF_CHARACTER = _alphabet()
_CHARACTER_OF_BYTE = {byte: chr(char) for char, byte in _BYTE_OF_CHARACTER.items()}
_FOREIGN = 256
_BYTES = np.full(max(_BYTE_OF_CHARACTER) + 2, _FOREIGN, np.uint16)
"""By code point; the last entry stands for all that follow."""
_BYTES[list(_BYTE_OF_CHARACTER)] = list(_BYTE_OF_CHARACTER.values())


def decode_alphabet(texts: Sequence[str]) -> list[bytes]:
    """The bytes that each text writes down; ``KeyError`` with a character outside the alphabet."""
    joined = "".join(texts)
    codes = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), "<u4")
    values = _BYTES[np.minimum(codes, len(_BYTES) - 1)]
    if (values == _FOREIGN).any():
        raise KeyError(joined[int((values == _FOREIGN).argmax())])
    # One character is one byte, so the texts' lengths cut the joined bytes.
    data = values.astype(np.uint8).tobytes()
    ends = list(accumulate(map(len, texts)))
    return list(map(data.__getitem__, map(slice, [0, *ends], ends)))


def encode_alphabet(data: bytes) -> str:
    """The text that writes down ``data``."""
    return "".join(map(_CHARACTER_OF_BYTE.__getitem__, data))

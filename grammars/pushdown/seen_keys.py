"""The set of an object's property names that have no label, so that none occurs twice."""

from __future__ import annotations

import numpy as np
from numba import njit

from ramet.jit import jit

_QUOTE, _BACKSLASH = 0x22, 0x5C


@njit(inline="always")
def _four_digits(text, at):  # type: ignore[no-untyped-def]
    code = np.int64(0)
    for i in range(at, at + 4):
        byte = np.int64(text[i])
        if byte < 0x3A:
            byte -= 0x30
        else:
            byte = (byte | 0x20) - 0x57
        code = code * 16 + byte
    return code


@jit(
    "int64(uint8[::1], int64, int64, int64[::1], int64)",
)
def read_name(text, begin, end, frames, record):  # type: ignore[no-untyped-def]
    """Write the name that is spelled in ``text[begin:end]`` as a record; its size in words.

    The text is that of a name's lexeme: white space, a quote, the body (RFC 8259, section 7), and
    perhaps a quote and more. The caller sees to the room: 3 words, and one for each 8 bytes.
    """
    at = begin
    while text[at] != _QUOTE:
        at += 1
    at += 1
    length = np.int64(0)
    word = np.int64(0)
    while at < end and text[at] != _QUOTE:
        code = np.int64(text[at])
        at += 1
        num_bytes = 1
        if code == _BACKSLASH:
            code = np.int64(text[at])
            at += 1
            if code == 0x75:
                code = _four_digits(text, at)
                at += 4
                if 0xD800 <= code < 0xDC00:
                    code = 0x10000 + ((code - 0xD800) << 10) + _four_digits(text, at + 2) - 0xDC00
                    at += 6
                num_bytes = 1 if code < 0x80 else 2 if code < 0x800 else 3 if code < 0x10000 else 4
            elif code == 0x62:
                code = np.int64(0x08)
            elif code == 0x66:
                code = np.int64(0x0C)
            elif code == 0x6E:
                code = np.int64(0x0A)
            elif code == 0x72:
                code = np.int64(0x0D)
            elif code == 0x74:
                code = np.int64(0x09)
        for i in range(num_bytes):
            byte = code
            if num_bytes > 1:
                byte = np.int64((code >> (6 * (num_bytes - 1 - i))) & 0x3F | 0x80)
                if i == 0:
                    byte |= np.int64((0xF00 >> num_bytes) & 0xFF)
            word |= byte << (8 * (length & 7))
            length += 1
            if length & 7 == 0:
                frames[record + 1 + (length >> 3)] = word
                word = np.int64(0)
    frames[record + 2 + (length >> 3)] = word
    frames[record + 1] = length
    return 3 + (length >> 3)


@jit("boolean(uint8[::1], int64, int64, int64[::1], int64, int64)")
def is_taken(text, begin, end, frames, names, free):  # type: ignore[no-untyped-def]
    """Whether a name is among those that ``names`` leads to; words from ``free`` on are scratch."""
    size = read_name(text, begin, end, frames, free)
    while names != 0:
        same = True
        for i in range(1, size):
            if frames[names + i] != frames[free + i]:
                same = False
                break
        if same:
            return True
        names = frames[names]
    return False

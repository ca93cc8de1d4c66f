"""The bodies of JSON strings (RFC 8259, section 7): the bytes between the quotes.

``VALUE_TEXT`` has every spelling of every text. ``KEY_TEXT``, for names of properties, spells a
printable ASCII character only as itself or by its short escape, so that a name that is
distinguished from others has few spellings. In both, state 0 is the border between two characters.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from ramet.grammars.regular import (
    Dfa,
    RegularLimits,
    Transducer,
    any_text,
    decoder_table,
    json_string_body,
    regex_dfa,
)

VALUE_SLICE, KEY_SLICE = range(2)
"""The vocabulary's slices: tokens that stay inside a value's or a name's text."""

_HEX = "[0-9a-fA-F]"
_KEY_CHARACTER = (
    r'[^"\\\x00-\x1f]|\\["\\/bfnrt]'
    rf"|\\u(?:00(?:[01]|[89a-fA-F]){_HEX}|0[1-9a-fA-F]{_HEX}{{2}}|[1-9abcefABCEF]{_HEX}{{3}}"
    rf"|[dD][0-7]{_HEX}{{2}}|[dD][89abAB]{_HEX}{{2}}\\u[dD][c-fC-F]{_HEX}{{2}})"
)


@cache
def value_text() -> Dfa:
    """Every string body."""
    return json_string_body(any_text())


@cache
def key_text() -> Dfa:
    """Every body of a property's name."""
    return regex_dfa(f"(?:{_KEY_CHARACTER})*")


@cache
def _key_decoder() -> Transducer:
    """The decoder of the bodies in ``KEY_TEXT``: ``decoder_table()`` where those go on."""
    decoder, body = decoder_table(), key_text().transitions
    numbers = {(0, 0): 0}
    pending = [(0, 0)]
    modes: list[list[int]] = []
    outputs: list[NDArray[np.int16]] = []
    for mode, state in pending:
        row = [-1] * 256
        output = np.where(body[state] >= 0, decoder.outputs[mode], -1).astype(np.int16)
        for byte in np.flatnonzero((body[state] >= 0) & (decoder.modes[mode] >= 0)).tolist():
            target = int(decoder.modes[mode, byte]), int(body[state, byte])
            if target not in numbers:
                numbers[target] = len(numbers)
                pending.append(target)
            row[byte] = numbers[target]
        modes.append(row)
        outputs.append(output)
    return Transducer(np.array(modes, np.int16), np.array(outputs, np.int16))


def key_body(dfa: Dfa, limits: RegularLimits) -> Dfa:
    """The spellings in ``KEY_TEXT`` of the texts in ``dfa``, a language of valid UTF-8; equal for
    equal languages."""
    return json_string_body(dfa, limits, decoder=_key_decoder(), minimal=False)


@cache
def slice_tables() -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """int32[num_states, 256] of both bodies, by slice."""
    for dfa in (value_text(), key_text()):
        borders = np.flatnonzero(dfa.accepting).tolist()
        assert borders == [0], "a body is complete exactly at a border"
    return value_text().transitions.copy(), key_text().transitions.copy()


def spellings(character: str) -> list[bytes]:
    """The spellings of a character in ``KEY_TEXT``, the shortest first.

    Hexadecimal digits are given in lower case; read them in either.
    """
    code = ord(character)
    found: list[bytes] = []
    if code >= 0x20 and character not in '"\\':
        found.append(character.encode())
    short = _SHORT_ESCAPES.get(character)
    if short is not None:
        found.append(short)
    if code > 0xFFFF:
        code -= 0x10000
        found.append(b"\\u%04x\\u%04x" % (0xD800 + (code >> 10), 0xDC00 + (code & 0x3FF)))
    elif code >= 0x80 or code < 0x20:
        found.append(b"\\u%04x" % code)
    return found


_SHORT_ESCAPES = {
    '"': b'\\"', "\\": b"\\\\", "/": b"\\/", "\b": b"\\b", "\f": b"\\f",
    "\n": b"\\n", "\r": b"\\r", "\t": b"\\t",
}  # fmt: skip

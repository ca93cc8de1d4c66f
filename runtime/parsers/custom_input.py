"""Reads the text of a custom tool from the JSON arguments of its call, as they stream in."""

from __future__ import annotations

import json
import re

_HEAD = re.compile(r'\s*\{\s*"input"\s*:\s*"')
_ESCAPE = re.compile(r'\\(?:u[0-9a-fA-F]{4}|["\\/bfnrt])')
_PLAIN = re.compile(r'[^"\\]+')


class CustomInputReader:
    """Decodes the string of ``{"input": "..."}``, piece by piece.

    Any cut of the arguments gives the same text. Escapes that are no characters, such as half of
    a surrogate pair, become U+FFFD.
    """

    def __init__(self) -> None:
        self._buffer = ""
        self._is_inside = False
        self._is_done = False

    def feed(self, piece: str) -> str:
        """Returns the text that is certain after ``piece``."""
        self._buffer += piece
        if self._is_done:
            return ""
        if not self._is_inside:
            head = _HEAD.match(self._buffer)
            if head is None:
                return ""
            self._buffer = self._buffer[head.end() :]
            self._is_inside = True
        return self._decode()

    def _decode(self) -> str:
        """Decodes up to the closing quote, or to an incomplete escape."""
        text, at, end = self._buffer, 0, len(self._buffer)
        out: list[str] = []
        while at < end:
            if plain := _PLAIN.match(text, at):
                out.append(plain.group())
                at = plain.end()
            elif text[at] == '"':
                self._is_done = True
                break
            elif escape := _ESCAPE.match(text, at):
                stop = escape.end()
                if _is_high_surrogate(escape.group()):
                    if end - stop < len("\\uDC00") and _may_be_low(text[stop:]):
                        break
                    low = _ESCAPE.match(text, stop)
                    if low is not None and _is_low_surrogate(low.group()):
                        stop = low.end()
                out.append(_character(text[at:stop]))
                at = stop
            else:
                break
        self._buffer = text[at:]
        return "".join(out)


def _character(escapes: str) -> str:
    decoded: str = json.loads(f'"{escapes}"')
    return decoded.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _is_high_surrogate(escape: str) -> bool:
    return escape[1] == "u" and 0xD800 <= int(escape[2:], 16) < 0xDC00


def _is_low_surrogate(escape: str) -> bool:
    return escape[1] == "u" and 0xDC00 <= int(escape[2:], 16) < 0xE000


def _may_be_low(text: str) -> bool:
    """Whether a low surrogate's escape may begin with ``text``."""
    return re.fullmatch(r"(?:\\(?:u(?:[dD](?:[c-fC-F][0-9a-fA-F]?)?)?)?)?", text) is not None

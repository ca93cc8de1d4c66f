"""Reads one tool call, written as a Python call with keyword arguments, while it is generated."""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Collection

from ramet.runtime.parsers.argument_values import read_python_value

_NAME = re.compile(r"\s*([\w.-]*)\s*")
_KEY = re.compile(r"\s*([^\W\d]\w*)\s*=")
_KEY_SO_FAR = re.compile(r"\s*(?:[^\W\d]\w*)?\s*")
_RUN = re.compile(r"[^\"'()\[\]{},]*")
_STRING_RUN = {quote: re.compile(rf"[^{quote}\\]*") for quote in "\"'"}
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_MAX_NAME_LEN = 256


class _State(enum.Enum):
    NAME = enum.auto()
    KEY = enum.auto()
    VALUE = enum.auto()
    DONE = enum.auto()
    BAD = enum.auto()


class PythonCallReader:
    """Reads ``name(key=value, ...)``; values are literals of Python or JSON.

    Args:
        names: the names that make a call; None allows any.
    """

    def __init__(self, names: Collection[str] | None = None) -> None:
        self._names = names
        self._state = _State.NAME
        self._buffer = ""
        self._key = ""
        self._value: list[str] = []
        self._open: list[str] = []  # closing brackets that the value still needs
        self._quote = ""
        self._escaped = False
        self._num_arguments = 0
        self._arguments: list[str] = []
        self.name: str | None = None

    @property
    def is_done(self) -> bool:
        return self._state is _State.DONE

    @property
    def is_bad(self) -> bool:
        return self._state is _State.BAD

    def read(self, text: str) -> str:
        """Reads on; returns what is behind the call's end, or can't belong to it."""
        self._buffer += text
        while self._state not in (_State.DONE, _State.BAD) and self._step():
            pass
        return self._buffer if self._state in (_State.DONE, _State.BAD) else ""

    def take_arguments(self) -> str:
        """The argument text that has come since the last call."""
        text = "".join(self._arguments)
        self._arguments.clear()
        return text

    def _step(self) -> bool:
        """Reads on in the buffer; False when it can't be read further."""
        if self._state is _State.NAME:
            return self._read_name()
        if self._state is _State.VALUE:
            return self._read_value()
        return self._read_key()

    def _read_name(self) -> bool:
        found = _NAME.match(self._buffer)
        name, rest = (found.group(1), self._buffer[found.end() :]) if found else ("", "")
        if not rest and len(name) <= _MAX_NAME_LEN:
            return False
        allowed = self._names is None or name in self._names
        if not name or not allowed or not rest.startswith("("):
            self._state = _State.BAD
            return False
        self.name = name
        self._buffer = rest[1:]
        self._arguments.append("{")
        self._state = _State.KEY
        return True

    def _read_key(self) -> bool:
        rest = self._buffer.lstrip()
        if rest.startswith(")"):
            self._end(rest[1:])
            return False
        found = _KEY.match(self._buffer)
        if found:
            self._key = found.group(1)
            self._buffer = self._buffer[found.end() :]
            self._state = _State.VALUE
            return True
        if not _KEY_SO_FAR.fullmatch(self._buffer):
            self._state = _State.BAD
        return False

    def _read_value(self) -> bool:
        """Reads up to the next character that means something; False at the buffer's end."""
        if self._quote:
            return self._read_string()
        found = _RUN.match(self._buffer)
        end = found.end() if found else 0
        self._take(end)
        if not self._buffer:
            return False
        char = self._buffer[0]
        if char in _STRING_RUN:
            self._quote = char
        elif char in _CLOSING:
            self._open.append(_CLOSING[char])
        elif not self._open and char in ",)":
            return self._end_value(char)
        elif char != "," and (not self._open or self._open.pop() != char):
            self._state = _State.BAD
            return False
        self._take(1)
        return True

    def _read_string(self) -> bool:
        if not self._buffer:
            return False
        if self._escaped:
            self._escaped = False
            self._take(1)
            return True
        found = _STRING_RUN[self._quote].match(self._buffer)
        self._take(found.end() if found else 0)
        if self._buffer:
            self._escaped = self._buffer[0] == "\\"
            if not self._escaped:
                self._quote = ""
            self._take(1)
        return True

    def _take(self, length: int) -> None:
        self._value.append(self._buffer[:length])
        self._buffer = self._buffer[length:]

    def _end_value(self, char: str) -> bool:
        text = read_python_value("".join(self._value))
        self._value.clear()
        if text is None:
            self._state = _State.BAD
            return False
        comma = ", " if self._num_arguments else ""
        self._num_arguments += 1
        self._arguments.append(f"{comma}{json.dumps(self._key, ensure_ascii=False)}: {text}")
        if char == ")":
            self._end(self._buffer[1:])
            return False
        self._buffer = self._buffer[1:]
        self._state = _State.KEY
        return True

    def _end(self, rest: str) -> None:
        self._buffer = rest
        self._arguments.append("}")
        self._state = _State.DONE

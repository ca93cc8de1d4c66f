"""Reads one tool call, written as a JSON object, while it is being generated."""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Collection
from typing import Protocol

_SPACE = " \t\n\r"
_STRING_RUN = re.compile(r'[^"\\]*')
_VALUE_RUN = re.compile(r'[^"{}\[\],]*')
_NAME = re.compile(r"\s*([\w.-]*)\s*")
_NUMBER = re.compile(r"^:\d+\s*")
_MAX_NAME_LEN = 256
_CLOSING = {"{": "}", "[": "]"}


class _State(enum.Enum):
    BEGIN = enum.auto()
    FIRST_KEY = enum.auto()
    KEY = enum.auto()
    COLON = enum.auto()
    VALUE_START = enum.auto()
    VALUE = enum.auto()
    COMMA = enum.auto()
    DONE = enum.auto()
    BAD = enum.auto()


class CallReader(Protocol):
    """Reads one tool call piece by piece."""

    @property
    def name(self) -> str | None:
        """The tool's name, once it is known."""
        ...

    @property
    def is_done(self) -> bool:
        """Whether the call is complete."""
        ...

    @property
    def is_bad(self) -> bool:
        """Whether what was read can't be a call."""
        ...

    def read(self, text: str) -> str:
        """Reads on; returns what it leaves unread because the call is done or bad."""
        ...

    def take_arguments(self) -> str:
        """The argument text that has come since the last time, never before the name."""
        ...


class JsonCallReader:
    """Reads ``{"name": ..., "arguments": ...}``, with its keys in any order.

    Arguments that are an object are handed out as they come. Where a model writes them as JSON
    text in a string, the text is taken; null stands for none.

    Args:
        argument_keys: the keys that can hold the arguments.
        known_keys: further keys that a call may have; None allows any.
        names: the names that make a call; None allows any.
        ends_with_arguments: the call ends with the arguments' value and not with the object.
    """

    def __init__(
        self,
        argument_keys: Collection[str],
        *,
        known_keys: Collection[str] | None = None,
        names: Collection[str] | None = None,
        ends_with_arguments: bool = False,
    ) -> None:
        self._ends_with_arguments = ends_with_arguments
        self._names = names
        self._argument_keys = frozenset(argument_keys)
        self._known_keys = None if known_keys is None else frozenset(known_keys)
        self._state = _State.BEGIN
        self._in_string = False
        self._escaped = False
        self._key = ""
        self._value: list[str] = []
        self._open: list[str] = []  # closing brackets that the value still needs
        self._arguments: list[str] = []
        self._streams_value = False
        self._has_arguments = False
        self.name: str | None = None

    @property
    def is_done(self) -> bool:
        """Whether the object is complete."""
        return self._state is _State.DONE

    @property
    def is_bad(self) -> bool:
        """Whether what was read can't be a call's object."""
        return self._state is _State.BAD

    def read(self, text: str) -> str:
        """Reads on; returns what is behind the object's end, or from the character on that can't
        belong to a call."""
        position = 0
        while position < len(text) and self._state not in (_State.DONE, _State.BAD):
            if self._in_string:
                position = self._read_string(text, position)
            elif self._state is _State.VALUE:
                position = self._read_value(text, position)
            elif text[position] in _SPACE:
                position += 1
            else:
                position = self._read_structure(text, position)
        return text[position:]

    def take_arguments(self) -> str:
        """The argument text that has come since the last call; empty until the name is known."""
        if self.name is None:
            return ""
        text = "".join(self._arguments)
        self._arguments.clear()
        return text

    def _read_structure(self, text: str, position: int) -> int:
        char, state = text[position], self._state
        if state is _State.BEGIN and char == "{":
            self._state = _State.FIRST_KEY
        elif state in (_State.FIRST_KEY, _State.KEY) and char == '"':
            self._in_string = True
            self._key = ""
        elif state is _State.COLON and char == ":":
            self._state = _State.VALUE_START
        elif state is _State.VALUE_START:
            self._begin_value(char)
            return position  # the value's own first character
        elif state is _State.COMMA and char == ",":
            self._state = _State.KEY
        elif char == "}" and state in (_State.FIRST_KEY, _State.COMMA):
            self._state = _State.DONE if self.name is not None else _State.BAD
        else:
            self._state = _State.BAD
            return position
        return position + 1 if self._state is not _State.BAD else position

    def _begin_value(self, char: str) -> None:
        self._state = _State.VALUE
        self._value.clear()
        self._open.clear()
        # An object can be handed out as it comes; anything else is looked at when it is whole.
        self._streams_value = self._key in self._argument_keys and char == "{"
        if self._key in self._argument_keys:
            if self._has_arguments:
                self._state = _State.BAD
            self._has_arguments = True

    def _read_string(self, text: str, start: int) -> int:
        """Reads on in a string, up to its closing quote: a key, or something inside a value."""
        position = start
        while position < len(text) and self._in_string:
            if self._escaped:
                self._escaped = False
                position += 1
                continue
            match = _STRING_RUN.match(text, position)
            position = match.end() if match else position
            if position < len(text):
                self._escaped = text[position] == "\\"
                self._in_string = self._escaped
                position += 1
        if self._state is _State.VALUE:
            self._add(text[start:position])
            if not self._in_string and not self._open:
                self._end_value()
        else:
            self._key += text[start:position]
            if not self._in_string:
                self._end_key()
        return position

    def _end_key(self) -> None:
        key = _decode(f'"{self._key}')
        if isinstance(key, str) and self._allows(key):
            self._key = key
            self._state = _State.COLON
        else:
            self._state = _State.BAD

    def _allows(self, key: str) -> bool:
        if self._known_keys is None or key == "name":
            return True
        return key in self._argument_keys or key in self._known_keys

    def _is_name(self, value: str) -> bool:
        allowed = self._names is None or value in self._names
        return bool(value) and self.name is None and allowed

    def _read_value(self, text: str, position: int) -> int:
        match = _VALUE_RUN.match(text, position)
        end = match.end() if match else position
        if end > position:
            self._add(text[position:end])
        if end == len(text):
            return end
        char = text[end]
        if char == '"':
            self._in_string = True
            self._add(char)
        elif char in _CLOSING:
            self._open.append(_CLOSING[char])
            self._add(char)
        elif not self._open:  # a number or a word ends at what follows it
            self._end_value()
            return end
        elif char == ",":
            self._add(char)
        elif char != self._open.pop():
            self._state = _State.BAD
            return end
        else:
            self._add(char)
            if not self._open:
                self._end_value()
        return end + 1

    def _add(self, text: str) -> None:
        (self._arguments if self._streams_value else self._value).append(text)

    def _end_value(self) -> None:
        ends = self._ends_with_arguments and self._key in self._argument_keys
        self._state = _State.DONE if ends else _State.COMMA
        if self._streams_value:
            self._streams_value = False
            return
        text = "".join(self._value).strip()
        value = _decode(text)
        if value is _INVALID:
            self._state = _State.BAD
        elif self._key == "name":
            if isinstance(value, str) and self._is_name(value):
                self.name = value
            else:
                self._state = _State.BAD
        elif self._key in self._argument_keys:
            inner = _decode(value) if isinstance(value, str) else _INVALID
            as_object = value if isinstance(inner, dict) else text
            self._arguments.append("{}" if value is None else str(as_object))


_INVALID = object()


def _split(pattern: re.Pattern[str], text: str) -> tuple[str, str]:
    """(the pattern's group at the start of ``text``, what is behind the match)."""
    match = pattern.match(text)
    return (match.group(1), text[match.end() :]) if match else ("", text)


def _decode(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return _INVALID


class NamedCallReader:
    """Reads ``name`` and the arguments' object right behind it, or behind a separator.

    With ``is_numbered``, ``:N`` may follow the name.
    """

    def __init__(self, separator: str, *, is_numbered: bool = False) -> None:
        self._separator = separator.strip()
        self._is_numbered = is_numbered
        self._head = ""
        self._object: JsonCallReader | None = None
        self._is_bad = False

    @property
    def name(self) -> str | None:
        return None if self._object is None else self._object.name

    @property
    def is_done(self) -> bool:
        return self._object is not None and self._object.is_done

    @property
    def is_bad(self) -> bool:
        return self._is_bad or (self._object is not None and self._object.is_bad)

    def read(self, text: str) -> str:
        if self._object is None:
            self._head += text
            text = self._read_head()
        return text if self._object is None else self._object.read(text)

    def _read_head(self) -> str:
        """Looks for the name before the object; returns what is behind it."""
        name, rest = _split(_NAME, self._head)
        if name and self._is_numbered:
            rest = _NUMBER.sub("", rest, count=1)
        rest = rest.removeprefix(self._separator).lstrip() if name else rest
        if rest.startswith("{") and name:
            self._object = JsonCallReader(("arguments",), ends_with_arguments=True)
            self._object.read(f'{{"name": {json.dumps(name)}, "arguments": ')
            return rest
        may_follow = self._separator.startswith(rest) or (self._is_numbered and rest == ":")
        self._is_bad = not may_follow or len(name) > _MAX_NAME_LEN
        return rest if self._is_bad else ""

    def take_arguments(self) -> str:
        return "" if self._object is None else self._object.take_arguments()

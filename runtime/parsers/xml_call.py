"""Reads one tool call, written with a tag a parameter, while it is being generated."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from typing import Any

from ramet.runtime.parsers.deltas import cut_at_tag
from ramet.runtime.parsers.xml_values import END, may_continue, read_value

_FUNCTION, _FUNCTION_END = "<function=", "</function>"
_PARAMETER, _PARAMETER_END = "<parameter=", END


class _State(enum.Enum):
    BEGIN = enum.auto()
    NAME = enum.auto()
    BODY = enum.auto()
    KEY = enum.auto()
    VALUE = enum.auto()
    DONE = enum.auto()
    BAD = enum.auto()


class XmlCallReader:
    """Reads ``<function=name><parameter=key>value</parameter>...</function>``.

    A value is text between newlines; by the tool's schema it is plain or JSON, see ``xml_values``.

    Args:
        schemas: the parameters' schema of each tool, by the tool's name.
    """

    def __init__(self, schemas: Mapping[str, Mapping[str, Any]]) -> None:
        self._schemas = schemas
        self._state = _State.BEGIN
        self._buffer = ""
        self._word: list[str] = []  # the name, key or value being read
        self._key = ""
        self._num_parameters = 0
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
        progress = True
        while progress and self._state not in (_State.DONE, _State.BAD):
            before = (self._state, len(self._buffer))
            self._step()
            progress = before != (self._state, len(self._buffer))
        return self._buffer if self._state in (_State.DONE, _State.BAD) else ""

    def take_arguments(self) -> str:
        """The argument text that has come since the last call."""
        text = "".join(self._arguments)
        self._arguments.clear()
        return text

    def _step(self) -> None:
        state = self._state
        if state is _State.BEGIN:
            self._expect({_FUNCTION: _State.NAME})
        elif state is _State.NAME:
            if self._read_word(">"):
                self.name = self._take_word().strip()
                self._arguments.append("{")
                self._state = _State.BODY if self.name else _State.BAD
        elif state is _State.BODY:
            self._expect({_PARAMETER: _State.KEY, _FUNCTION_END: _State.DONE})
            if self._state is _State.DONE:
                self._arguments.append("}")
        elif state is _State.KEY:
            if self._read_word(">"):
                self._key = self._take_word().strip()
                self._state = _State.VALUE
        elif self._read_word(_PARAMETER_END):
            value = self._take_word()
            if may_continue(value, self._schema()):
                self._word.append(value + _PARAMETER_END)
            else:
                self._add_parameter(value)
                self._state = _State.BODY

    def _expect(self, tags: Mapping[str, _State]) -> None:
        """Skips white space and takes one of ``tags``."""
        self._buffer = self._buffer.lstrip()
        for tag, state in tags.items():
            if self._buffer.startswith(tag):
                self._buffer = self._buffer[len(tag) :]
                self._state = state
                return
        if not any(tag.startswith(self._buffer) for tag in tags):
            self._state = _State.BAD

    def _read_word(self, end: str) -> bool:
        text, found, self._buffer = cut_at_tag(self._buffer, end)
        self._word.append(text)
        return found

    def _take_word(self) -> str:
        word = "".join(self._word)
        self._word.clear()
        return word

    def _add_parameter(self, value: str) -> None:
        value = value.removeprefix("\n").removesuffix("\n")
        comma = ", " if self._num_parameters else ""
        self._num_parameters += 1
        key = json.dumps(self._key, ensure_ascii=False)
        self._arguments.append(f"{comma}{key}: {self._as_json(value)}")

    def _as_json(self, value: str) -> str:
        return json.dumps(read_value(value, self._schema()), ensure_ascii=False)

    def _schema(self) -> Any:
        """The current parameter's schema; None for an undeclared one."""
        properties = self._schemas.get(self.name or "", {}).get("properties", {})
        return properties.get(self._key) if isinstance(properties, Mapping) else None

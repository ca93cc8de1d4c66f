"""Reads one tool call, written with a tag a parameter, while it is being generated."""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Mapping
from typing import Any

from ramet.runtime.parsers.argument_values import may_continue, read_value
from ramet.runtime.parsers.deltas import cut_at_tag
from ramet.runtime.parsers.tool_formats import TagSyntax

_NAME = re.compile(r"[^\s<>]*")


class _State(enum.Enum):
    BEGIN = enum.auto()
    NAME = enum.auto()
    BODY = enum.auto()
    KEY = enum.auto()
    VALUE_BEGIN = enum.auto()
    VALUE = enum.auto()
    DONE = enum.auto()
    BAD = enum.auto()


class TaggedCallReader:
    """Reads a name, then keys and values, each between tags: ``<parameter=key>value</parameter>``.

    By the tool's schema a value is plain text or JSON, see ``argument_values``.

    Args:
        tags: the tags; white space around them may vary.
        end: the mark behind the last argument.
        schemas: the parameters' schema of each tool, by the tool's name.
    """

    def __init__(self, tags: TagSyntax, end: str, schemas: Mapping[str, Mapping[str, Any]]) -> None:
        self._tags = tags
        self._end = end
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
        tags = self._tags
        match self._state:
            case _State.BEGIN:
                self._expect({tags.name[0].strip(): _State.NAME})
            case _State.NAME:
                self._read_name()
            case _State.BODY:
                self._expect({tags.key[0].strip(): _State.KEY, self._end: _State.DONE})
                if self.is_done:
                    self._arguments.append("}")
            case _State.KEY:
                if self._read_word(tags.key[1].strip()):
                    self._key = self._take_word().strip()
                    self._state = _State.VALUE_BEGIN
            case _State.VALUE_BEGIN:
                begin = tags.value[0].strip()
                if begin:
                    self._expect({begin: _State.VALUE})
                else:
                    self._state = _State.VALUE
            case _:
                self._read_value()

    def _read_name(self) -> None:
        """Reads the name up to its mark, or to white space where it has none."""
        end = self._tags.name[1].strip()
        if end:
            if not self._read_word(end):
                return
        else:
            text = self._buffer if self._word else self._buffer.lstrip()
            found = _NAME.match(text)
            name = found.group() if found else ""
            self._word.append(name)
            self._buffer = text[len(name) :]
            if not self._buffer:
                return
        self.name = self._take_word().strip()
        self._arguments.append("{")
        self._state = _State.BODY if self.name else _State.BAD

    def _read_value(self) -> None:
        end = self._tags.value_end
        if not self._read_word(end):
            return
        value = self._take_word()
        if may_continue(value, self._schema(), end):
            self._word.append(value + end)
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
        if not self._tags.value[0].strip():
            value = value.removeprefix("\n").removesuffix("\n")
        comma = ", " if self._num_parameters else ""
        self._num_parameters += 1
        key = json.dumps(self._key, ensure_ascii=False)
        text = read_value(value, self._schema(), self._tags.value_end)
        self._arguments.append(f"{comma}{key}: {text}")

    def _schema(self) -> Any:
        """The current parameter's schema; None for an undeclared one."""
        properties = self._schemas.get(self.name or "", {}).get("properties", {})
        return properties.get(self._key) if isinstance(properties, Mapping) else None

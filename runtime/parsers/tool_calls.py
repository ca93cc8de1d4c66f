"""Splits tool calls from the text around them."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from typing import Any

from ramet.runtime.parsers.deltas import (
    ChatDelta,
    ContentDelta,
    ToolArgumentsDelta,
    ToolCallEnd,
    ToolCallStart,
    cut_at_tag,
    cut_at_tags,
    join_deltas,
)
from ramet.runtime.parsers.json_call import CallReader, JsonCallReader, NamedCallReader
from ramet.runtime.parsers.python_call import PythonCallReader
from ramet.runtime.parsers.tagged_call import TaggedCallReader
from ramet.runtime.parsers.tool_formats import ToolFormat

_EXTRA_KEYS = frozenset({"id", "type"})


class _State(enum.Enum):
    START = enum.auto()  # of the output, where a bare call may stand
    TEXT = enum.auto()
    SECTION_START = enum.auto()
    LIST_START = enum.auto()
    CALL = enum.auto()
    AFTER_CALL = enum.auto()
    BROKEN = enum.auto()  # up to the end of the tags


class ToolCallParser:
    """Reads an output with tool calls.

    A call's start is handed out when its name and the beginning of its arguments are there, its
    arguments as they come. White space next to calls is dropped. What turns out to be no call is
    text; a call that breaks off after its start ends as incomplete, and what follows it up to the
    end of the tags is dropped.

    Args:
        tool_format: how calls are written.
        schemas: the parameters' schema of each tool, by its name. With a bare format, only these
            names make a call, so that a JSON answer stays an answer.
    """

    def __init__(
        self, tool_format: ToolFormat, schemas: Mapping[str, Mapping[str, Any]] | None = None
    ) -> None:
        self._format = tool_format
        self._schemas = schemas or {}
        self._state = _State.START if tool_format.is_bare else _State.TEXT
        self._marks = tuple(mark.strip() for mark in tool_format.starts)
        self._buffer = ""
        self._space = ""  # at the end of the text so far; dropped if a call follows
        self._is_behind_call = False
        self._raw = ""  # the text since the tag, while it may still be no call
        self._reader: CallReader | None = None
        self._arguments: list[str] | None = None  # those of a call that has started
        self._is_bare = False
        self.num_calls = 0

    def feed(self, piece: str, *, final: bool = False) -> list[ChatDelta]:
        """The deltas that are certain after ``piece``; with ``final``, all that are left."""
        self._buffer += piece
        out: list[ChatDelta] = []
        while self._step(out):
            pass
        if final:
            self._finish(out)
        return join_deltas(out)

    def _step(self, out: list[ChatDelta]) -> bool:
        """Reads on in the buffer; False when it can't be read further."""
        match self._state:
            case _State.START:
                return self._read_start()
            case _State.TEXT:
                return self._read_text(out)
            case _State.SECTION_START:
                return self._read_section_start(out)
            case _State.LIST_START:
                return self._read_list_start(out)
            case _State.CALL:
                return self._read_call(out)
            case _State.AFTER_CALL:
                return self._read_after_call()
            case _State.BROKEN:
                _, found, self._buffer = cut_at_tag(self._buffer, self._format.end.strip() or "\0")
                self._state = _State.TEXT if found else _State.BROKEN
                return found

    def _read_start(self) -> bool:
        text = self._buffer.lstrip()
        if not text:
            return False
        first = self._format.brackets[0] if self._format.style == "python" else "{"
        if text.startswith(first):
            self._raw = self._buffer[: len(self._buffer) - len(text)]
            self._buffer = text
            if first != "{":
                self._raw += first
                self._buffer = text[len(first) :]
            self._begin_call(bare=True)
        else:
            self._state = _State.TEXT
        return True

    def _read_text(self, out: list[ChatDelta]) -> bool:
        text, found, self._buffer = cut_at_tags(self._buffer, self._marks)
        self._add_text(out, text)
        if found is None:
            return False
        self._raw = found
        if found == self._format.section[0]:
            self._state = _State.SECTION_START
        else:
            self._begin_calls()
        return True

    def _read_section_start(self, out: list[ChatDelta]) -> bool:
        """Reads on to the first call of a section."""
        text, begin = self._buffer.lstrip(), self._marks[-1]
        if text.startswith(begin):
            num_read = len(self._buffer) - len(text) + len(begin)
            self._raw += self._buffer[:num_read]
            self._buffer = self._buffer[num_read:]
            self._begin_calls()
        elif not begin.startswith(text):
            self._give_up(out)
        else:
            return False
        return True

    def _begin_calls(self) -> None:
        has_list = self._format.style in ("json_list", "python") and self._format.brackets[0]
        if has_list:
            self._state = _State.LIST_START
        else:
            self._begin_call()

    def _read_list_start(self, out: list[ChatDelta]) -> bool:
        text = self._buffer.lstrip()
        if not text:
            return False
        self._raw += self._buffer[: len(self._buffer) - len(text)]
        self._buffer = text
        bracket = self._format.brackets[0]
        if text.startswith(bracket):
            self._raw += bracket
            self._buffer = text[len(bracket) :]
            self._begin_call()
        elif text[0] == "{":
            self._begin_call()
        elif bracket.startswith(text):
            return False
        else:
            self._give_up(out)
        return True

    def _begin_call(self, *, bare: bool = False) -> None:
        self._state = _State.CALL
        self._is_bare = bare
        self._arguments = None
        if self._format.style == "xml":
            end = self._format.tail.partition("\n")[0].strip()
            self._reader = TaggedCallReader(self._format.tags, end, self._schemas)
        elif self._format.style == "named_json":
            self._reader = NamedCallReader(
                self._format.separator, is_numbered=self._format.is_numbered
            )
        elif self._format.style == "python":
            self._reader = PythonCallReader((self._schemas or None) if bare else None)
        else:
            keys = {self._format.arguments_key, "arguments", "parameters"}
            self._reader = (
                JsonCallReader(keys, known_keys=_EXTRA_KEYS, names=self._schemas or None)
                if bare
                else JsonCallReader(keys)
            )

    def _read_call(self, out: list[ChatDelta]) -> bool:
        reader = self._reader
        if reader is None or not self._buffer:
            return False
        rest = reader.read(self._buffer)
        if self._arguments is None:
            # A reader may give back what it was fed before, so this counts from the end.
            self._raw += self._buffer
            self._raw = self._raw[: len(self._raw) - len(rest)]
        self._buffer = rest
        self._hand_out(reader, out)
        if self._arguments is None:
            is_text = reader.is_bad or reader.is_done
            if is_text:
                self._give_up(out)
            return is_text
        if reader.is_done or reader.is_bad:
            complete = reader.is_done and _is_object("".join(self._arguments))
            self._end_call(out, complete=complete)
            self._state = _State.AFTER_CALL if reader.is_done else _State.BROKEN
            return True
        return False

    def _hand_out(self, reader: CallReader, out: list[ChatDelta]) -> None:
        """Emits the call's start once it is certain, and new parts of its arguments."""
        if self._arguments is None:
            if reader.name is None:
                return
            text = reader.take_arguments()
            if not text and reader.is_done and not self._is_bare:
                text = "{}"
            if not text:
                return
            self._arguments = []
            self._space = self._raw = ""
            out.append(ToolCallStart(self.num_calls, reader.name))
        else:
            text = reader.take_arguments()
        if text:
            self._arguments.append(text)
            out.append(ToolArgumentsDelta(self.num_calls, text))

    def _end_call(self, out: list[ChatDelta], *, complete: bool) -> None:
        out.append(ToolCallEnd(self.num_calls, complete))
        self.num_calls += 1
        self._is_behind_call = True
        self._arguments = None
        self._reader = None

    def _read_after_call(self) -> bool:
        text = self._buffer.lstrip()
        if not text:
            self._buffer = ""
            return False
        self._buffer = text
        ends = [end.strip() for end in self._call_ends() if end.strip()]
        for end in ends:
            if text.startswith(end):
                self._buffer = text[len(end) :]
                if end == self._format.between.strip():
                    self._begin_call()
                elif end in self._last_ends():
                    self._state = _State.TEXT
                return True
        if any(end.startswith(text) for end in ends):
            return False
        if self._may_begin_unmarked(text[0]):
            self._begin_call()
        else:
            self._state = _State.TEXT
        return True

    def _may_begin_unmarked(self, char: str) -> bool:
        """Whether another call begins here, with no mark before it."""
        if self._format.style == "python":
            return not self._format.brackets[0] and (char.isalpha() or char == "_")
        return char == "{" and self._format.style == "json"

    def _call_ends(self) -> tuple[str, ...]:
        """What may come behind a call."""
        each = self._format
        bracket = each.brackets[1] if each.style in ("json_list", "python") else ""
        return (each.between, bracket, each.end, each.section[1])

    def _last_ends(self) -> tuple[str, ...]:
        """Those behind which no call of the same list or section comes."""
        each = self._format
        if each.section[1]:
            return (each.section[1].strip(),)
        if each.end:
            return (each.end.strip(),)
        return self._call_ends()

    def _give_up(self, out: list[ChatDelta]) -> None:
        """Treats everything since the tag as text."""
        raw, self._raw = self._raw, ""
        self._reader = None
        self._state = _State.TEXT
        self._add_text(out, raw)

    def _add_text(self, out: list[ChatDelta], text: str) -> None:
        text = self._space + text
        if self._is_behind_call:
            text = text.lstrip()
        stripped = text.rstrip()
        if stripped:
            out.append(ContentDelta(stripped))
            self._is_behind_call = False
        self._space = text[len(stripped) :]

    def _finish(self, out: list[ChatDelta]) -> None:
        if self._state is _State.CALL and self._arguments is not None:
            self._end_call(out, complete=False)
        elif self._state not in (_State.AFTER_CALL, _State.BROKEN):
            self._add_text(out, self._raw + self._buffer)
        if self._space and not self._is_behind_call:
            out.append(ContentDelta(self._space))
        self._space = self._raw = self._buffer = ""


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False

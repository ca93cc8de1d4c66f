"""Builds the tool-call part of an output's constraint."""

from __future__ import annotations

import keyword
from collections.abc import Mapping, Set
from typing import Any

from ramet.grammars.constraints import (
    AnyOf,
    FixedText,
    FreeText,
    JsonSchema,
    JsonString,
    Part,
    Regex,
    Repeated,
    Series,
)
from ramet.runtime.api.errors import InvalidConstraintError
from ramet.runtime.api.paths import field_path
from ramet.runtime.chat.conversation import ToolChoice
from ramet.runtime.chat.offered_tools import INPUT, TextGrammar
from ramet.runtime.chat.param_paths import Origins
from ramet.runtime.chat.tool_schemas import ToolSchema
from ramet.runtime.parsers import ToolFormat
from ramet.runtime.parsers.argument_values import (
    ANNOTATIONS,
    PYTHON_WORDS,
    is_plain_text,
    listed_texts,
)

Tools = Mapping[str, ToolSchema]

_ROOT_KEYWORDS = ANNOTATIONS | {
    "$defs", "additionalProperties", "definitions", "properties", "required", "type",
}  # fmt: skip
"""Root keywords of an argument schema whose parameters are written separately."""


class ToolGrammar:
    """Builds calls from a tool format, so that the constraint allows what its parser reads.

    Args:
        tool_format: how calls are written.
        tools: those that may be called.
        origins: records the field of each schema.
    """

    def __init__(self, tool_format: ToolFormat, tools: Tools, origins: Origins) -> None:
        self._format = tool_format
        self._tools = tools
        self._origins = origins

    def calls(
        self,
        choice: ToolChoice,
        *,
        parallel: bool,
        has_answer: bool,
        max_calls: int | None = None,
    ) -> Part:
        """Builds the calls that ``choice`` allows.

        Where a call must be made, the output is calls and nothing else. In auto mode there may
        be text before, and where ``parallel``, between and behind them; text that begins like a
        call is one, with arguments that are valid for its tool. With ``has_answer`` there is no
        such text, for the answer has its own constraint. In channels, text has its own too.
        With ``max_calls`` calls are in one sequence of at most as many.
        """
        is_channel = self._format.style == "channels"
        if isinstance(choice, tuple):
            return self._some({choice[1]: self._tools[choice[1]]}, at_most=1)
        at_most = max_calls if parallel and not is_channel else 1
        some = self._some(self._tools, at_most=at_most)
        if choice == "required" or has_answer or is_channel:
            return some
        free = FreeText(excluded=self._triggers())
        later = self._some(self._tools, at_most=at_most, bare=False)
        first: Part = free
        if self._format.is_bare:  # only the beginning of an output may be a call without a mark
            first = AnyOf((free, self._some(self._tools, at_most=at_most)))
        if at_most is not None:
            return AnyOf((first, Series((free, later))))
        return Series((first, Repeated(Series((later, free)))))

    def _triggers(self) -> tuple[str, ...]:
        """Texts that mark the beginning of a call."""
        written = self._format
        if not written.is_bare:
            return written.starts
        bracket = written.brackets[0] if written.style == "python" else ""
        heads = (bracket + written.head(name) for name in self._tools)
        return (*written.starts, *(head.partition(",")[0] for head in heads))

    def _some(self, tools: Tools, *, at_most: int | None, bare: bool = True) -> Part:
        """One or more calls, in the format's sequence; ``bare``: also without their first mark."""
        more = None if at_most is None else at_most - 1
        begin, end = self._format.enclosure
        if self._format.has_json_arguments:
            one = self._any_with_json(tools)
        else:
            _check_by_name(self._format, tools)
            one = AnyOf(tuple(self._argument_by_argument(*tool) for tool in tools.items()))
        head: list[Part] = [FixedText(begin)] if begin else []
        tail: list[Part] = [FixedText(end)] if end else []
        rest = Repeated(Series((FixedText(self._format.between), one)), maximum=more)
        if not self._format.between:
            rest = Repeated(one, maximum=more)
        marked = Series((*head, one, rest, *tail))
        if not (bare and self._format.is_bare):
            return marked
        bare_begin = begin.removeprefix(self._format.begin)
        bare_end = end.removesuffix(self._format.end) if self._format.end else end
        around = [FixedText(bare_begin)] if bare_begin else []
        behind = [FixedText(bare_end)] if bare_end else []
        return AnyOf((marked, Series((*around, one, rest, *behind))))

    def _any_with_json(self, tools: Tools) -> Part:
        """One call with JSON arguments."""
        written, calls = self._format, []
        for name, tool in tools.items():
            head: tuple[Part, ...] = (FixedText(written.head(name)),)
            if written.is_numbered:
                number = Regex("0|[1-9][0-9]{0,3}")
                head = (FixedText(written.head(name, None)), number, FixedText(written.separator))
            tail = (FixedText(written.tail),) if written.tail else ()
            calls.append(Series((*head, self._arguments(name, tool), *tail)))
        return AnyOf(tuple(calls))

    def _arguments(self, name: str, tool: ToolSchema) -> Part:
        """The JSON object of a call's arguments."""
        if tool.text_grammar is None:
            return self._note(name, JsonSchema(tool.schema, integers="plain"), tool.field)
        text = self._note(name, tool.text_grammar, tool.field)
        return Series((FixedText(f'{{"{INPUT}": '), JsonString(text), FixedText("}")))

    def _argument_by_argument(self, name: str, tool: ToolSchema) -> Part:
        """One call that names each argument: required ones first in Python, to place commas."""
        written = self._format
        properties = tool.schema.get("properties", {})
        required = set(tool.schema.get("required", ()))
        values: dict[str, Part] = {}
        for key, schema in properties.items():
            if tool.text_grammar is None:
                values[key] = self._value(name, tool, key, schema)
                continue
            text = self._note(name, tool.text_grammar, tool.field)
            values[key] = JsonString(text) if written.style == "python" else text
        head, tail = FixedText(written.head(name)), FixedText(written.tail)
        if written.style == "python":
            return Series((head, _keyword_arguments(values, required), tail))
        tags = written.tags
        parts: list[Part] = []
        for key, value in values.items():
            begin = tags.key[0] + key + tags.key[1] + tags.value[0]
            parameter = Series((FixedText(begin), value, FixedText(tags.value[1])))
            parts.append(parameter if key in required else Repeated(parameter, maximum=1))
        return Series((head, *parts, tail))

    def _value(self, name: str, tool: ToolSchema, key: str, value: Any) -> Part:
        """An argument's value, written as ``argument_values`` reads it."""
        if self._format.style == "python":
            if words := _python_words(value):
                return AnyOf(tuple(map(FixedText, words)))
        else:
            end = self._format.tags.value_end
            if is_plain_text(value):
                return FreeText(excluded=(end,))
            if texts := listed_texts(value, end):
                return AnyOf(tuple(map(FixedText, texts)))
        shared = {n: tool.schema[n] for n in ("$defs", "definitions") if n in tool.schema}
        schema = {**shared, **value} if isinstance(value, Mapping) else value
        escaped = key.replace("~", "~0").replace("/", "~1")
        field = field_path(tool.field, f"/properties/{escaped}")
        return self._note(name, JsonSchema(schema, integers="plain"), field)

    def _note(self, name: str, part: JsonSchema | TextGrammar, field: str) -> Part:
        return self._origins.add_part(part, field, f"the tool {name!r}")


def _python_words(schema: Any) -> tuple[str, ...]:
    """The words that are all of a boolean's or null's values in Python."""
    if not isinstance(schema, Mapping) or set(schema) - {"type"} - ANNOTATIONS:
        return ()
    words = {"boolean": ("true", "false"), "null": ("null",)}.get(str(schema.get("type")), ())
    return tuple(PYTHON_WORDS[word] for word in words)


def _keyword_arguments(values: Mapping[str, Part], required: Set[str]) -> Part:
    """``key=value`` with commas between, required ones first, then any of the others in order."""
    keys = sorted(values, key=lambda key: key not in required)
    written = [Series((FixedText(f"{key}="), values[key])) for key in keys]
    more = [
        Series((FixedText(", "), part)) if key in required
        else Repeated(Series((FixedText(", "), part)), maximum=1)
        for key, part in zip(keys, written, strict=True)
    ]  # fmt: skip
    if not written:
        return FixedText("")
    if keys[0] in required:
        return Series((written[0], *more[1:]))
    first = [Series((part, *more[i + 1 :])) for i, part in enumerate(written)]
    return Repeated(AnyOf(tuple(first)), maximum=1)


def _check_by_name(tool_format: ToolFormat, tools: Tools) -> None:
    """Refuses tools whose calls can't be held to their schema argument by argument."""
    style = f"in the style in which this model calls tools ({tool_format.name})"
    for name, tool in tools.items():
        _check_keywords(name, tool, style)
        for key in tool.schema.get("properties", {}):
            if tool_format.style == "python":
                can_stand = key.isidentifier() and key.isascii() and not keyword.iskeyword(key)
            else:
                mark = tool_format.tags.key[1].strip()
                can_stand = key == key.strip() and bool(key) and mark not in key
            if not can_stand:
                raise InvalidConstraintError(
                    f"the parameter {key!r} of the tool {name!r} can't be written {style}",
                    param=field_path(tool.field, "/properties"),
                )


def _check_keywords(name: str, tool: ToolSchema, style: str) -> None:
    for word in tool.schema:
        if word not in _ROOT_KEYWORDS:
            raise InvalidConstraintError(
                f"{word!r} of the tool {name!r} can't be enforced {style}",
                param=field_path(tool.field, f"/{word}"),
            )
    properties = tool.schema.get("properties", {})
    for key in tool.schema.get("required", ()):
        if key not in properties:
            raise InvalidConstraintError(
                f"the tool {name!r} requires {key!r}, which is not among its properties",
                param=field_path(tool.field, "/required"),
            )

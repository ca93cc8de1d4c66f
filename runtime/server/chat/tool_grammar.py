"""Builds the tool-call part of an output's constraint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ramet.grammars.constraints import (
    AnyOf,
    FixedText,
    FreeText,
    JsonSchema,
    JsonString,
    Part,
    Repeated,
    Series,
)
from ramet.runtime.api.errors import InvalidConstraintError
from ramet.runtime.api.paths import field_path
from ramet.runtime.parsers import ToolFormat
from ramet.runtime.parsers.xml_values import ANNOTATIONS, END, is_plain_text, listed_texts
from ramet.runtime.server.chat.conversation import ToolChoice
from ramet.runtime.server.chat.offered_tools import INPUT, TextGrammar
from ramet.runtime.server.chat.tool_schemas import ToolSchema
from ramet.runtime.server.protocol.param_paths import Origins

Tools = Mapping[str, ToolSchema]

_XML_KEYWORDS = ANNOTATIONS | {
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

    def calls(self, choice: ToolChoice, *, parallel: bool, has_answer: bool) -> Part:
        """Builds the calls that ``choice`` allows.

        Where a call must be made, the output is calls and nothing else. In auto mode there may
        be text before, and where ``parallel``, between and behind them; text that begins like a
        call is one, with arguments that are valid for its tool. With ``has_answer`` there is no
        such text, for the answer has its own constraint. In channels, text has its own too.
        """
        is_channel = self._format.style == "channels"
        if isinstance(choice, tuple):
            return self._some({choice[1]: self._tools[choice[1]]}, at_most=1)
        at_most = None if parallel and not is_channel else 1
        some = self._some(self._tools, at_most=at_most)
        if choice == "required" or has_answer or is_channel:
            return some
        free = FreeText(excluded=self._triggers())
        if not parallel:
            return AnyOf((free, Series((free, some))))
        return Series((free, Repeated(Series((some, free)))))

    def _triggers(self) -> tuple[str, ...]:
        """Texts that mark the beginning of a call."""
        begin = self._format.begin
        if not self._format.is_bare:
            return (begin,)
        return (begin, self._format.opening("").removeprefix(begin)[:-2])

    def _some(self, tools: Tools, *, at_most: int | None) -> Part:
        """One or more calls, in the format's sequence."""
        more = None if at_most is None else at_most - 1
        begin, end = self._format.begin, self._format.end
        match self._format.style:
            case "json_list":
                call = self._any(tools, begin + "[", "]" + end)
                rest = Repeated(Series((FixedText(", "), call)), maximum=more)
                return Series((FixedText(begin + "["), call, rest, FixedText("]" + end)))
            case "json" if not end:
                call = self._any(tools, begin, "")
                head: Part = FixedText(begin)
                if self._format.is_bare:
                    head = AnyOf((head, FixedText("")))
                rest = Repeated(Series((FixedText(self._format.separator), call)), maximum=more)
                return Series((head, call, rest))
            case "channels":  # the token that ends a call ends the output
                return self._any(tools, "", end)
            case "xml":
                one: Part = AnyOf(tuple(self._xml(*tool) for tool in tools.items()))
            case _:
                one = self._any(tools, "", "")
        return Series((one, Repeated(Series((FixedText("\n"), one)), maximum=more)))

    def _any(self, tools: Tools, head: str, tail: str) -> Part:
        """One call with JSON arguments, without ``head`` and ``tail``, which enclose several."""
        closing = self._format.closing
        end = closing[: len(closing) - len(tail)]
        calls = []
        for name, tool in tools.items():
            opening = self._format.opening(name).removeprefix(head)
            arguments = self._arguments(name, tool)
            calls.append(Series((FixedText(opening), arguments, FixedText(end))))
        return AnyOf(tuple(calls))

    def _arguments(self, name: str, tool: ToolSchema) -> Part:
        """The JSON object of a call's arguments."""
        if tool.text_grammar is None:
            return self._note(name, JsonSchema(tool.schema, integers="plain"), tool.field)
        text = self._note(name, tool.text_grammar, tool.field)
        return Series((FixedText(f'{{"{INPUT}": '), JsonString(text), FixedText("}")))

    def _xml(self, name: str, tool: ToolSchema) -> Part:
        """One call with a tag for each parameter, in the schema's order."""
        _check_xml(name, tool)
        required = set(tool.schema.get("required", ()))
        own = tool.text_grammar
        parts: list[Part] = [FixedText(f"{self._format.begin}\n<function={name}>\n")]
        for key, value in tool.schema.get("properties", {}).items():
            parameter = Series(
                (
                    FixedText(f"<parameter={key}>\n"),
                    self._note(name, own, tool.field)
                    if own
                    else self._xml_value(name, tool, key, value),
                    FixedText("\n</parameter>\n"),
                )
            )
            parts.append(parameter if key in required else Repeated(parameter, maximum=1))
        parts.append(FixedText(f"</function>\n{self._format.end}"))
        return Series(tuple(parts))

    def _xml_value(self, name: str, tool: ToolSchema, key: str, value: Any) -> Part:
        """A parameter's value, written as ``xml_values`` reads it."""
        if is_plain_text(value):
            return FreeText(excluded=(END,))
        if texts := listed_texts(value):
            return AnyOf(tuple(map(FixedText, texts)))
        shared = {n: tool.schema[n] for n in ("$defs", "definitions") if n in tool.schema}
        schema = {**shared, **value} if isinstance(value, Mapping) else value
        escaped = key.replace("~", "~0").replace("/", "~1")
        field = field_path(tool.field, f"/properties/{escaped}")
        return self._note(name, JsonSchema(schema, integers="plain"), field)

    def _note(self, name: str, part: JsonSchema | TextGrammar, field: str) -> Part:
        return self._origins.add_part(part, field, f"the tool {name!r}")


def _check_xml(name: str, tool: ToolSchema) -> None:
    """Refuses what a call with a tag for each parameter can't be held to."""
    style = "in the XML style in which this model calls tools"
    for keyword in tool.schema:
        if keyword not in _XML_KEYWORDS:
            raise InvalidConstraintError(
                f"{keyword!r} of the tool {name!r} can't be enforced {style}",
                param=field_path(tool.field, f"/{keyword}"),
            )
    properties = tool.schema.get("properties", {})
    for key in tool.schema.get("required", ()):
        if key not in properties:
            raise InvalidConstraintError(
                f"the tool {name!r} requires {key!r}, which is not among its properties",
                param=field_path(tool.field, "/required"),
            )
    for key in properties:
        if key != key.strip() or not key or ">" in key:
            raise InvalidConstraintError(
                f"the parameter {key!r} of the tool {name!r} can't be written {style}",
                param=field_path(tool.field, "/properties"),
            )

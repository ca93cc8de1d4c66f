"""How models write tool calls, as data: see ``known_formats`` for the entries."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.parsers.argument_values import write_value

ToolCallStyle = Literal["json", "json_list", "named_json", "xml", "python", "channels"]
"""``json``: an object with name and arguments for each call. ``json_list``: a list of such objects.
``named_json``: the name, then the arguments' object. ``xml``: tags around each argument, see
``TagSyntax``. ``python``: a list of Python calls with keyword arguments. ``channels``: a message to
a function, see ``channels``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TagSyntax:
    """What encloses the parts of a call in the style ``xml``; white space around it may vary.

    Attributes:
        name, key, value: the texts before and behind the tool's name, a key, and a value.
        end: the text behind the last argument.
    """

    name: tuple[str, str] = ("\n<function=", ">\n")
    key: tuple[str, str] = ("<parameter=", ">")
    value: tuple[str, str] = ("\n", "\n</parameter>\n")
    end: str = "</function>\n"

    @property
    def value_end(self) -> str:
        """The mark that ends a value."""
        return self.value[1].strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFormat:
    """One way of writing tool calls.

    Attributes:
        name: value of the server's option.
        style: see ``ToolCallStyle``.
        begin, end: around a call, or around the list of them; ``end`` may be empty.
        section: around all calls of an answer; empty in the styles with a list.
        between: the text between two calls.
        gap: the text between the marks and the object in ``json``.
        arguments_key: the key of the arguments, in the styles that have one.
        separator: the text between name and arguments in ``named_json`` and ``channels``.
        is_numbered: ``:N`` follows the name, N counting the calls of a conversation from 0.
        brackets: around the list of calls in ``json_list`` and ``python``.
        tags: the tags in the style ``xml``.
        result: how a tool's result is printed, ``{}`` standing for it, where the template has
            no turns of tools.
        is_bare: calls may also stand without ``begin``, where the output begins with them.
        template_marks: texts that a chat template which teaches the format has, all of them;
            empty: the format is chosen by its name only.
    """

    name: str
    style: ToolCallStyle
    begin: str
    end: str = ""
    section: tuple[str, str] = ("", "")
    between: str = "\n"
    gap: str = "\n"
    arguments_key: str = "arguments"
    separator: str = ""
    is_numbered: bool = False
    brackets: tuple[str, str] = ("[", "]")
    tags: TagSyntax = TagSyntax()
    result: str = "<tool_response>\n{}\n</tool_response>"
    is_bare: bool = False
    template_marks: tuple[str, ...] = ()

    @property
    def has_json_arguments(self) -> bool:
        """Whether a call is fixed text around the arguments' JSON."""
        return self.style not in ("xml", "python")

    @property
    def starts(self) -> tuple[str, ...]:
        """The marks with which calls begin."""
        return (self.section[0], self.begin) if self.section[0] else (self.begin,)

    @property
    def marks(self) -> tuple[str, ...]:
        """All texts that may be, or hold, control tokens of a vocabulary."""
        marks = (*self.section, self.begin, self.separator, self.end, *self.tags.key)
        return tuple(mark for mark in marks if mark)

    @property
    def enclosure(self) -> tuple[str, str]:
        """The texts before the first call of an answer and behind the last one."""
        if self.style in ("json_list", "python"):
            return self.begin + self.brackets[0], self.brackets[1] + self.end
        if self.style == "json" and not self.end:
            return self.begin, ""
        return self.section

    def head(self, tool_name: str, number: int | None = 0) -> str:
        """The text of a call before its arguments, or before its number where that is None."""
        match self.style:
            case "json" | "json_list":
                gap = f"{self.begin}{self.gap}" if self.style == "json" and self.end else ""
                name = json.dumps(tool_name, ensure_ascii=False)
                return f'{gap}{{"name": {name}, "{self.arguments_key}": '
            case "xml":
                return self.begin + self.tags.name[0] + tool_name + self.tags.name[1]
            case "python":
                return f"{tool_name}("
        if not self.is_numbered:
            return self.begin + tool_name + self.separator
        head = f"{self.begin}{tool_name}:"
        return head if number is None else f"{head}{number}{self.separator}"

    @property
    def tail(self) -> str:
        """The text of a call behind its arguments."""
        match self.style:
            case "json":
                return "}" + (f"{self.gap}{self.end}" if self.end else "")
            case "json_list":
                return "}"
            case "xml":
                return self.tags.end + self.end
            case "python":
                return ")"
        return self.end

    def opening(self, tool_name: str) -> str:
        """The text before the arguments of an answer's only call."""
        return self.enclosure[0] + self.head(tool_name)

    @property
    def closing(self) -> str:
        """The text behind the arguments of an answer's only call."""
        return self.tail + self.enclosure[1]

    def call(
        self,
        tool_name: str,
        arguments: Mapping[str, Any] | str,
        schema: Mapping[str, Any] | None = None,
    ) -> str:
        """A whole call as the model writes it; see ``calls``."""
        return self.calls([(tool_name, arguments)], {tool_name: schema} if schema else {})

    def calls(
        self,
        calls: Iterable[tuple[str, Mapping[str, Any] | str]],
        schemas: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        first_number: int = 0,
    ) -> str:
        """All calls of an answer, names with arguments, as the model writes them.

        A text as arguments is written in their place. ``schemas``: the tools' argument schemas;
        without one, texts in the styles with tags stand unquoted.
        """
        written = []
        for number, (name, arguments) in enumerate(calls, first_number):
            text = arguments
            if not isinstance(text, str):
                text = self._arguments(text, (schemas or {}).get(name))
            written.append(self.head(name, number) + text + self.tail)
        begin, end = self.enclosure
        return begin + self.between.join(written) + end

    def _arguments(self, arguments: Mapping[str, Any], schema: Mapping[str, Any] | None) -> str:
        if self.has_json_arguments:
            return json.dumps(arguments, ensure_ascii=False)
        properties = (schema or {}).get("properties", {})
        if self.style == "python":
            return ", ".join(
                f"{key}={write_value(value, properties.get(key), None)}"
                for key, value in arguments.items()
            )
        tags = self.tags
        return "".join(
            tags.key[0] + key + tags.key[1] + tags.value[0]
            + write_value(value, properties.get(key), tags.value_end) + tags.value[1]
            for key, value in arguments.items()
        )  # fmt: skip

    def instruct(self, tools: Sequence[Mapping[str, Any]]) -> str:
        """Describes the tools, and how to call them, to a model whose template doesn't."""
        if self.has_json_arguments:
            example = self.call("the tool's name", "{its arguments as JSON}")
        elif self.style == "python":
            example = self.call("tool_name", "argument_name=value")
        else:
            example = self.call("the tool's name", {"an argument's name": "its value"})
        listed = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
        return _INSTRUCTIONS.format(tools=listed, example=example)


_INSTRUCTIONS = """\
You can call tools. The tools, one JSON description a line:
{tools}
To call a tool, write exactly this, and nothing after it:
{example}"""

_ADAPTER = TypeAdapter(ToolFormat)


def read_tool_format(path: str | Path) -> ToolFormat:
    """A format of one's own, from a JSON file with the attributes of ``ToolFormat``.

    Raises:
        InvalidParameterError: the file can't be read, or declares no usable format.
    """
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8")
        own = _ADAPTER.validate_python(_strict(json.loads(text)))
    except (OSError, ValueError) as error:
        reason = _first_fault(error) if isinstance(error, ValidationError) else error
        raise InvalidParameterError(
            f"the tool format {path} can't be read: {reason}", param="tool_format"
        ) from None
    if not own.begin.strip():
        raise InvalidParameterError(
            f"the tool format {path} needs a text in 'begin'", param="tool_format"
        )
    return own


def _strict(declared: Any) -> Any:
    """The declaration, refused where it has attributes that no format has."""
    if not isinstance(declared, dict):
        raise ValueError("it must be a JSON object")
    if declared.get("style") == "channels":
        raise ValueError("the style 'channels' has one format, harmony")
    tags = declared.get("tags", {})
    for given, known in ((declared, ToolFormat), (tags, TagSyntax)):
        for key in given:
            if key not in known.__dataclass_fields__:
                raise ValueError(f"unknown attribute {key!r}")
    return declared


def _first_fault(error: ValidationError) -> str:
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"

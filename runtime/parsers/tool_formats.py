"""The formats of tool calls, as data: a new format of a known style is one more entry."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import Any, Literal

from ramet.runtime.parsers.reasoning import speaks_harmony

ToolCallStyle = Literal["json", "json_list", "named_json", "xml", "channels"]
"""``json``: one object with name and arguments a call. ``json_list``: a list of such objects.
``named_json``: the name, then the arguments' object. ``xml``: a tag a parameter. ``channels``: a
message to a function, see ``streams.channels``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFormat:
    """One way of writing tool calls.

    Attributes:
        name: what the server's option takes.
        style: see ``ToolCallStyle``.
        begin, end: around a call, or around the list of them; ``end`` may be empty.
        arguments_key: the key of the arguments, in the styles that have one.
        is_bare: a call may also stand without ``begin``, where the output begins with it.
        has_control_tags: the tags are control tokens in the vocabularies that use this format,
            so the text must be taken with ``skip_special_tokens=False``.
    """

    name: str
    style: ToolCallStyle
    begin: str
    end: str = ""
    arguments_key: str = "arguments"
    separator: str = ""
    is_bare: bool = False
    has_control_tags: bool = False

    @property
    def has_json_arguments(self) -> bool:
        """Whether a call is fixed text around the arguments' JSON."""
        return self.style != "xml"

    def opening(self, tool_name: str) -> str:
        """The fixed text before a call's JSON arguments, for constraining the output."""
        head = json.dumps(tool_name, ensure_ascii=False)
        if self.style == "json":
            gap = "\n" if self.end else ""
            return f'{self.begin}{gap}{{"name": {head}, "{self.arguments_key}": '
        if self.style == "json_list":
            return f'{self.begin}[{{"name": {head}, "{self.arguments_key}": '
        if self.style in ("named_json", "channels"):
            return f"{self.begin}{tool_name}{self.separator}"
        raise ValueError(f"{self.name} has no JSON arguments")

    @property
    def closing(self) -> str:
        """The fixed text behind a call's JSON arguments."""
        if self.style == "json":
            return "}" + ("\n" + self.end if self.end else "")
        if self.style == "json_list":
            return "}]" + self.end
        if self.style in ("named_json", "channels"):
            return self.end
        raise ValueError(f"{self.name} has no JSON arguments")

    def call(self, tool_name: str, arguments: Mapping[str, Any] | str) -> str:
        """A whole call as the model writes it; a text stands where its arguments would."""
        if self.has_json_arguments:
            text = arguments if isinstance(arguments, str) else _json(arguments)
            return self.opening(tool_name) + text + self.closing
        text = (
            arguments if isinstance(arguments, str) else "".join(starmap(_tag, arguments.items()))
        )
        return f"{self.begin}\n<function={tool_name}>\n{text}</function>\n{self.end}"

    def instruct(self, tools: Sequence[Mapping[str, Any]]) -> str:
        """Describes tools and the format of calls for a model whose template doesn't."""
        if self.has_json_arguments:
            example = self.call("the tool's name", "{its arguments as JSON}")
        else:
            example = self.call("the tool's name", {"an argument's name": "its value"})
        return _INSTRUCTIONS.format(tools="\n".join(map(_json, tools)), example=example)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _tag(name: str, value: Any) -> str:
    text = value if isinstance(value, str) else _json(value)
    return f"<parameter={name}>\n{text}\n</parameter>\n"


_INSTRUCTIONS = """\
You can call tools. The tools, one JSON description a line:
{tools}
To call a tool, write exactly this, and nothing after it:
{example}"""

TOOL_FORMATS = {
    each.name: each
    for each in (
        ToolFormat(name="hermes", style="json", begin="<tool_call>", end="</tool_call>"),
        ToolFormat(
            name="llama3_json",
            style="json",
            begin="<|python_tag|>",
            arguments_key="parameters",
            separator=";",
            is_bare=True,
            has_control_tags=True,
        ),
        ToolFormat(name="mistral", style="json_list", begin="[TOOL_CALLS]", has_control_tags=True),
        ToolFormat(
            name="mistral_args",
            style="named_json",
            begin="[TOOL_CALLS]",
            separator="[ARGS]",
            has_control_tags=True,
        ),
        ToolFormat(
            name="harmony",
            style="channels",
            begin="<|channel|>commentary to=functions.",
            separator=" <|constrain|>json<|message|>",
            end="<|call|>",
            has_control_tags=True,
        ),
        ToolFormat(name="qwen3_xml", style="xml", begin="<tool_call>", end="</tool_call>"),
        ToolFormat(name="generic", style="json", begin="<tool_call>", end="</tool_call>"),
    )
}
"""By the name that the server's options use."""


def detect_tool_format(chat_template: str | None) -> ToolFormat:
    """The format that a chat template teaches; ``generic`` where it teaches none."""
    template = chat_template or ""
    if speaks_harmony(template):
        return TOOL_FORMATS["harmony"]
    if "<function=" in template and "<parameter=" in template:
        return TOOL_FORMATS["qwen3_xml"]
    if "<tool_call>" in template:
        return TOOL_FORMATS["hermes"]
    if "[TOOL_CALLS]" in template:
        return TOOL_FORMATS["mistral_args" if "[ARGS]" in template else "mistral"]
    if "<|python_tag|>" in template or "ipython" in template:
        return TOOL_FORMATS["llama3_json"]
    return TOOL_FORMATS["generic"]

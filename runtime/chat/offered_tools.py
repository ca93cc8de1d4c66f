"""The tools of a call in the form that all chat APIs share: functions and custom tools.

A custom tool takes one text instead of arguments, which may be held to a grammar. The model calls
it as a function of one string, ``input``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ramet.grammars.constraints import Ebnf, Regex

INPUT = "input"
"""Name of a custom tool's only argument."""

TextGrammar = Ebnf | Regex


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedTool:
    """A tool that the model may call.

    Attributes:
        definition: the function in OpenAI's shape, which chat templates print. Its name is the
            one that the model writes.
        field: path of the argument schema, or of a custom tool's grammar, in the body.
        name: as the API knows it.
        namespace: the group of tools that it belongs to; None: none.
        is_custom: it takes a text.
        text_grammar: what a custom tool's text is held to; None: any text.
    """

    definition: Mapping[str, Any]
    field: str
    name: str
    namespace: str | None = None
    is_custom: bool = False
    text_grammar: TextGrammar | None = None

    @property
    def model_name(self) -> str:
        """The name that the model writes."""
        written: str = self.definition["function"]["name"]
        return written


def offered_function(
    function: Mapping[str, Any], field: str, *, namespace: str | None = None
) -> OfferedTool:
    """A function, given as OpenAI's ``function`` object."""
    name = function["name"]
    written = {**function, "name": model_name(name, namespace)}
    return OfferedTool(
        definition={"type": "function", "function": written},
        field=field,
        name=name,
        namespace=namespace,
    )


def offered_custom_tool(
    name: str,
    description: str | None,
    text_grammar: TextGrammar | None,
    field: str,
    *,
    namespace: str | None = None,
) -> OfferedTool:
    """A custom tool; its grammar is shown to the model as part of the description."""
    shown = description or ""
    if text_grammar is not None:
        kind = "Lark grammar" if isinstance(text_grammar, Ebnf) else "regular expression"
        source = text_grammar.grammar if isinstance(text_grammar, Ebnf) else text_grammar.pattern
        shown += f"\n\nThe input matches this {kind}:\n{source}"
    function = {
        "name": model_name(name, namespace),
        "description": shown.strip(),
        "parameters": custom_parameters(),
    }
    return OfferedTool(
        definition={"type": "function", "function": function},
        field=field,
        name=name,
        namespace=namespace,
        is_custom=True,
        text_grammar=text_grammar,
    )


def past_call(call_id: str | None, name: str, arguments: str) -> dict[str, Any]:
    """A call of an earlier answer in OpenAI's shape; ``arguments`` are JSON text."""
    function = {"name": name, "arguments": arguments}
    identified = {} if call_id is None else {"id": call_id}
    return {**identified, "type": "function", "function": function}


def custom_arguments(text: str) -> str:
    """The JSON arguments with which the model calls a custom tool."""
    return json.dumps({INPUT: text}, ensure_ascii=False)


def custom_parameters() -> dict[str, Any]:
    """The argument schema of a custom tool."""
    return {
        "type": "object",
        "properties": {INPUT: {"type": "string"}},
        "required": [INPUT],
        "additionalProperties": False,
    }


def model_name(name: str, namespace: str | None) -> str:
    """The name under which the model calls a tool: ``files__list`` in the namespace ``files``."""
    if not namespace:
        return name
    return namespace + ("" if namespace.endswith("__") else "__") + name

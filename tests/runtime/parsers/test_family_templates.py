"""Promised: what a family's chat template prints for a past call is what its parser reads.

The templates are short ones that print calls as those of the family do.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from ramet.runtime.parsers import (
    TOOL_FORMATS,
    ContentDelta,
    ToolArgumentsDelta,
    ToolCallParser,
    ToolCallStart,
    detect_tool_format,
    read_tool_format,
)
from ramet.runtime.testing.scripted_tokenizer import scripted_tokenizer
from ramet.runtime.tokenizer import ChatTemplate

_OPEN = "{% for m in messages %}{% if m.tool_calls %}"
_CLOSE = "{% else %}{{ m.content }}{% endif %}{% endfor %}{% if tools %}{% endif %}"
_JSON = """{"name": "{{ c.function.name }}", "%s": {{ c.function.arguments | tojson }}}"""


def _each(body: str, between: str = "") -> str:
    gap = f"{{% if not loop.last %}}{between}{{% endif %}}" if between else ""
    return "{% for c in m.tool_calls %}" + body + gap + "{% endfor %}"


_PYTHON = (
    "{{ c.function.name }}({% for k, v in c.function.arguments.items() %}{{ k }}="
    "{% if v is string %}{{ v | tojson }}{% else %}{{ v }}{% endif %}"
    "{% if not loop.last %}, {% endif %}{% endfor %})"
)
_ONE, _END = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
_ALL, _ALL_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_ID = "<|tool_call_begin|>{{ c.id }}<|tool_call_argument_begin|>"

TEMPLATES = {
    "hermes": _each("<tool_call>\n" + _JSON % "arguments" + "\n</tool_call>", "\n"),
    "glm45": _each(
        "\n<tool_call>{{ c.function.name }}{% for k, v in c.function.arguments.items() %}\n"
        "<arg_key>{{ k }}</arg_key>\n<arg_value>"
        "{% if v is string %}{{ v }}{% else %}{{ v | tojson }}{% endif %}</arg_value>"
        "{% endfor %}\n</tool_call>"
    ),
    "qwen3_xml": _each(
        "<tool_call>\n<function={{ c.function.name }}>"
        "{% for k, v in c.function.arguments.items() %}\n<parameter={{ k }}>\n"
        "{% if v is string %}{{ v }}{% else %}{{ v | tojson }}{% endif %}\n</parameter>"
        "{% endfor %}\n</function>\n</tool_call>",
        "\n",
    ),
    "deepseek_v3": _ALL
    + _each(
        _ONE + "function<｜tool▁sep｜>{{ c.function.name }}\n"
        "{{ '```json\\n' + c.function.arguments + '\\n```' }}" + _END,
        "\n",
    )
    + _ALL_END,
    "deepseek_v31": _ALL
    + _each(_ONE + "{{ c.function.name + '<｜tool▁sep｜>' + c.function.arguments }}" + _END)
    + _ALL_END,
    "kimi_k2": "<|tool_calls_section_begin|>"
    + _each(_ID + "{{ c.function.arguments | tojson }}<|tool_call_end|>")
    + "<|tool_calls_section_end|>",
    "phi4": "{# <|tool|><|/tool|> #}"
    + _each("<|tool_call|>" + _JSON % "arguments" + "<|/tool_call|>"),
    "granite": "<|tool_call|>[" + _each(_JSON % "arguments", ", ") + "]",
    "mistral": "[TOOL_CALLS][" + _each(_JSON % "arguments", ", ") + "]",
    "mistral_args": _each(
        "[TOOL_CALLS]{{ c.function.name }}[ARGS]{{ c.function.arguments | tojson }}"
    ),
    "llama3_json": "{# <|python_tag|> #}" + _each(_JSON % "parameters", "; "),
    "llama4_json": "<|python_start|><|python_end|>" + _each(_JSON % "parameters"),
    "llama4_pythonic": "{# [func_name1(a=b)] #}[" + _each(_PYTHON, ", ") + "]",
    "gemma": "```tool_code\n" + _each(_PYTHON, "\n") + "\n```",
}

CALLS = [
    ("weather", {"city": 'Köln "am" Rhein', "days": 2, "exact": True, "tags": ["a", None, -1.5]}),
    ("time", {}),
    ("note", {"city": "it's\n<b>", "deep": {"k": [{"x": False}]}}),
]
SCHEMA = {"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
SCHEMA["properties"] |= {"exact": {"type": "boolean"}, "tags": {}, "deep": {}}
TOOL = {"type": "function", "function": {"name": "time", "parameters": {}}}


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_what_a_template_prints_is_read(name: str) -> None:
    source = _OPEN + TEMPLATES[name] + _CLOSE
    tool_format = detect_tool_format(source)
    assert tool_format.name == name
    sent = [
        {"id": f"functions.{f}:{i}", "function": {"name": f, "arguments": json.dumps(arguments)}}
        for i, (f, arguments) in enumerate(CALLS)
    ]
    pieces = ChatTemplate(source, scripted_tokenizer()).render(
        [{"role": "assistant", "content": None, "tool_calls": sent}],
        tools=[TOOL],
        add_generation_prompt=False,
    )
    printed = "".join(text for text, _ in pieces)
    schemas = {f: SCHEMA for f, _ in CALLS}
    assert _calls(ToolCallParser(tool_format, schemas), [printed]) == CALLS
    assert _calls(ToolCallParser(tool_format, schemas), list(printed)) == CALLS
    written = tool_format.calls(CALLS, schemas)
    assert _calls(ToolCallParser(tool_format, schemas), list(written)) == CALLS


def test_every_family_is_checked() -> None:
    assert set(TOOL_FORMATS) - set(TEMPLATES) == {"harmony", "generic"}


def test_a_format_of_ones_own_is_read_from_a_file(tmp_path: Any) -> None:
    path = tmp_path / "own.json"
    own = {
        "name": "own",
        "style": "xml",
        "begin": "<call>",
        "end": "</call>",
        "tags": {
            "name": ["<f>", "</f>"], "key": ["<k>", "</k>"], "value": ["<v>", "</v>"], "end": ""
        },
    }  # fmt: skip
    path.write_text(json.dumps(own))
    tool_format = read_tool_format(path)
    written = tool_format.call("f", {"a": "x </k>", "b": 1}, {"properties": {"b": {}}})
    assert written == "<call><f>f</f><k>a</k><v>x </k></v><k>b</k><v>1</v></call>"
    read = _calls(ToolCallParser(tool_format, {"f": {"properties": {"b": {}}}}), list(written))
    assert read == [("f", {"a": "x </k>", "b": 1})]


def _calls(parser: ToolCallParser, pieces: list[str]) -> list[tuple[str, Any]]:
    deltas = [each for piece in pieces for each in parser.feed(piece)]
    deltas += parser.feed("", final=True)
    texts = "".join(each.text for each in deltas if isinstance(each, ContentDelta))
    assert not texts.strip()
    read: list[tuple[str, list[str]]] = []
    for each in deltas:
        if isinstance(each, ToolCallStart):
            read.append((each.name, []))
        elif isinstance(each, ToolArgumentsDelta):
            read[each.index][1].append(each.text)
    return [(name, json.loads("".join(parts))) for name, parts in read]

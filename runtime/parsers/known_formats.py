"""The tool-call formats that Ramet knows, and which of them a chat template teaches."""

from __future__ import annotations

from ramet.runtime.parsers.reasoning import speaks_harmony
from ramet.runtime.parsers.tool_formats import TagSyntax, ToolFormat

_DEEPSEEK_BEGIN, _DEEPSEEK_END = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
_DEEPSEEK_SECTION = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")
_DEEPSEEK_RESULT = "<｜tool▁output▁begin｜>{}<｜tool▁output▁end｜>"

TOOL_FORMATS = {
    each.name: each
    for each in (
        ToolFormat(
            name="harmony",
            style="channels",
            begin="<|channel|>commentary to=functions.",
            separator=" <|constrain|>json<|message|>",
            end="<|call|>",
        ),
        ToolFormat(
            name="qwen3_xml",
            style="xml",
            begin="<tool_call>",
            end="</tool_call>",
            template_marks=("<function=", "<parameter="),
        ),
        ToolFormat(
            name="glm45",
            style="xml",
            begin="<tool_call>",
            end="</tool_call>",
            tags=TagSyntax(
                name=("", "\n"),
                key=("<arg_key>", "</arg_key>\n"),
                value=("<arg_value>", "</arg_value>\n"),
                end="",
            ),
            template_marks=("<arg_key>", "<arg_value>"),
        ),
        ToolFormat(
            name="kimi_k2",
            style="named_json",
            section=("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
            begin="<|tool_call_begin|>functions.",
            is_numbered=True,
            separator="<|tool_call_argument_begin|>",
            end="<|tool_call_end|>",
            between="",
            template_marks=("<|tool_call_argument_begin|>",),
        ),
        ToolFormat(
            name="deepseek_v3",
            style="named_json",
            section=_DEEPSEEK_SECTION,
            begin=f"{_DEEPSEEK_BEGIN}function<｜tool▁sep｜>",
            separator="\n```json\n",
            end=f"\n```{_DEEPSEEK_END}",
            result=_DEEPSEEK_RESULT,
            template_marks=(_DEEPSEEK_BEGIN, "```json"),
        ),
        ToolFormat(
            name="deepseek_v31",
            style="named_json",
            section=_DEEPSEEK_SECTION,
            begin=_DEEPSEEK_BEGIN,
            separator="<｜tool▁sep｜>",
            end=_DEEPSEEK_END,
            between="",
            result=_DEEPSEEK_RESULT,
            template_marks=(_DEEPSEEK_BEGIN,),
        ),
        ToolFormat(
            name="phi4",
            style="json",
            begin="<|tool_call|>",
            end="<|/tool_call|>",
            gap="",
            between="",
            template_marks=("<|tool|>", "<|/tool|>"),
        ),
        ToolFormat(
            name="granite",
            style="json_list",
            begin="<|tool_call|>",
            between=", ",
            template_marks=("<|tool_call|>",),
        ),
        ToolFormat(
            name="hermes",
            style="json",
            begin="<tool_call>",
            end="</tool_call>",
            template_marks=("<tool_call>",),
        ),
        ToolFormat(
            name="mistral_args",
            style="named_json",
            begin="[TOOL_CALLS]",
            separator="[ARGS]",
            between="",
            template_marks=("[TOOL_CALLS]", "[ARGS]"),
        ),
        ToolFormat(
            name="mistral",
            style="json_list",
            begin="[TOOL_CALLS]",
            between=", ",
            template_marks=("[TOOL_CALLS]",),
        ),
        ToolFormat(
            name="gemma",
            style="python",
            begin="```tool_code\n",
            end="\n```",
            brackets=("", ""),
            result="```tool_output\n{}\n```",
            template_marks=("tool_code",),
        ),
        ToolFormat(
            name="llama4_pythonic",
            style="python",
            begin="<|python_start|>",
            end="<|python_end|>",
            between=", ",
            is_bare=True,
            template_marks=("[func_name",),
        ),
        ToolFormat(
            name="llama4_json",
            style="json",
            begin="<|python_start|><|python_end|>",
            between="",
            arguments_key="parameters",
            is_bare=True,
            template_marks=("<|python_start|>",),
        ),
        ToolFormat(
            name="llama3_json",
            style="json",
            begin="<|python_tag|>",
            between=";",
            arguments_key="parameters",
            is_bare=True,
            template_marks=("<|python_tag|>",),
        ),
        ToolFormat(name="generic", style="json", begin="<tool_call>", end="</tool_call>"),
    )
}
"""By the name that the server's options use; a template teaches the first whose marks it has."""


def detect_tool_format(chat_template: str | None) -> ToolFormat:
    """The format that a chat template teaches; ``generic`` where it teaches none."""
    template = chat_template or ""
    if speaks_harmony(template):
        return TOOL_FORMATS["harmony"]
    for each in TOOL_FORMATS.values():
        if each.template_marks and all(mark in template for mark in each.template_marks):
            return each
    if "ipython" in template:  # the role of results
        return TOOL_FORMATS["llama3_json"]
    return TOOL_FORMATS["generic"]

"""What a chat API asks for, in one form for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ramet.runtime.server.protocol.param_paths import Asked

ToolChoice = Literal["none", "auto", "required"] | tuple[Literal["tool"], str]
"""As OpenAI's; the one tool that must be called is ``("tool", name)``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """What a chat API asks for, in one form for all of them.

    Attributes:
        messages: in OpenAI's shape.
        tools: functions in OpenAI's shape.
        tool_choice: which tools may or must be called.
        allowed_tools: only these of the tools may be; None: each of them.
        parallel_tool_calls: more than one call in the answer is fine.
        constraint: what the answer, or without a tool call its text, must match.
        schema_field: where in the body a tool's schema stands, with ``{}`` for its index.
        template_variables: further variables of the template.
        reasoning_effort: as OpenAI's; None: the template's default.
        thinking: whether to reason at all; None: the template's default.
        thinking_budget: most tokens of reasoning, which then comes first.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: ToolChoice = "auto"
    allowed_tools: tuple[str, ...] | None = None
    parallel_tool_calls: bool = True
    constraint: Asked | None = None
    schema_field: str = "tools[{}].function.parameters"
    template_variables: Mapping[str, Any] = field(default_factory=dict)
    reasoning_effort: str | None = None
    thinking: bool | None = None
    thinking_budget: int | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False

"""The common form of all chat APIs' conversations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ramet.runtime.chat.offered_tools import OfferedTool
from ramet.runtime.chat.param_paths import RequestedConstraint

ToolChoice = Literal["none", "auto", "required"] | tuple[Literal["tool"], str]
"""As OpenAI's; ``("tool", name)`` requires a call of that tool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A conversation to continue, independent of the API.

    Attributes:
        messages: in OpenAI's shape.
        tools: those that the model is shown.
        tool_choice: which tools may or must be called.
        allowed_tools: the tools that may be called, as the model writes them; None: all.
        parallel_tool_calls: allows several calls in one answer.
        max_calls: most calls in one answer, which are then in one sequence; None: unlimited.
        keeps_tools: tools that can't be called are shown nevertheless, so that the prompt's
            beginning stays the same.
        constraint: the answer's constraint, unless it is a tool call.
        template_variables: additional variables of the template.
        reasoning_effort: as OpenAI's; None: the template's default.
        thinking: whether to reason at all; None: the template's default.
        thinking_budget: most tokens of reasoning; requires reasoning before the answer.
        effort_field, thinking_field: the body's fields of the effort and of the thinking.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[OfferedTool] = ()
    tool_choice: ToolChoice = "auto"
    allowed_tools: tuple[str, ...] | None = None
    parallel_tool_calls: bool = True
    max_calls: int | None = None
    keeps_tools: bool = False
    constraint: RequestedConstraint | None = None
    template_variables: Mapping[str, Any] = field(default_factory=dict)
    reasoning_effort: str | None = None
    thinking: bool | None = None
    thinking_budget: int | None = None
    effort_field: str = "reasoning_effort"
    thinking_field: str = "thinking_token_budget"
    add_generation_prompt: bool = True
    continue_final_message: bool = False

"""How a chat call's text is constrained and read: tools, reasoning and output format together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ramet.grammars.constraints import Constraint
from ramet.runtime.errors import InvalidParameterError
from ramet.runtime.server.messages import MessageParser, PlainText
from ramet.runtime.server.protocol.chat import ChatCompletionRequest


@dataclass(frozen=True, slots=True)
class ChatPlan:
    """What a chat call needs besides its messages and sampling parameters.

    Attributes:
        constraint: what the output must match.
        parser: makes a fresh parser for one choice.
        shown_tools: the tools that the template prints, in OpenAI's shape.
        template_variables: further variables of the template.
    """

    constraint: Constraint | None
    parser: Callable[[], MessageParser] = PlainText
    shown_tools: list[dict[str, Any]] | None = None
    template_variables: dict[str, Any] = field(default_factory=dict)


def plan_chat(body: ChatCompletionRequest) -> ChatPlan:
    """The plan of a chat body."""
    if body.tools or body.tool_choice not in (None, "none"):
        raise InvalidParameterError(
            "tools are not supported by this server", param="tools", code="unsupported_parameter"
        )
    if body.reasoning_effort is not None:
        raise InvalidParameterError(
            "reasoning_effort is not supported by this server",
            param="reasoning_effort",
            code="unsupported_parameter",
        )
    return ChatPlan(body.constraint(), template_variables=dict(body.chat_template_kwargs or {}))

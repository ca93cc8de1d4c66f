"""``POST /v1/messages`` and ``/v1/messages/count_tokens``: Anthropic's bodies.

https://docs.anthropic.com/en/api/messages
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag

from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.chat.offered_tools import OfferedTool, offered_function
from ramet.runtime.server.protocol.base import THREAD_UNSUPPORTED, ApiModel, Int
from ramet.runtime.server.protocol.builtin_tools import (
    BUILT_IN,
    BuiltInTool,
    supported_tools,
    tool_type,
    warn_of_builtin_tools,
)
from ramet.runtime.server.protocol.shared_fields import NOTHING_CLEARED, WARNED, CallFields
from ramet.runtime.server.protocol.tagged_unions import supported_types, type_of

_CACHED = frozenset({"cache_control"})
"""Prompt caching is always on here."""


class TextBlock(ApiModel):
    """Text."""

    type: Literal["text"]
    text: str

    NO_EFFECT: ClassVar = _CACHED
    UNSUPPORTED: ClassVar = {"citations": ([],)}


class ThinkingBlock(ApiModel):
    """Reasoning of an earlier answer; signatures aren't checked."""

    type: Literal["thinking"]
    thinking: str

    NO_EFFECT: ClassVar = frozenset({"signature"})


class ToolUseBlock(ApiModel):
    """A call of an earlier answer."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]

    NO_EFFECT: ClassVar = _CACHED
    UNSUPPORTED: ClassVar = {"caller": ({"type": "direct"},), "toolset_name": ()}


def _shape_of(content: Any) -> str:
    return "<blocks>" if isinstance(content, list) else "<text>"


TextBlocks = list[Annotated[TextBlock, supported_types("content blocks", ("text",))]]

Text = Annotated[
    Annotated[str, Tag("<text>")] | Annotated[TextBlocks, Tag("<blocks>")],
    Discriminator(_shape_of),
]
"""Text, or a list of text blocks."""


class ToolResultBlock(ApiModel):
    """The result of a call."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: Text | None = None
    is_error: bool = False

    NO_EFFECT: ClassVar = _CACHED
    UNSUPPORTED: ClassVar = {"toolset_name": ()}


Block = Annotated[
    Annotated[TextBlock, Tag("text")]
    | Annotated[ThinkingBlock, Tag("thinking")]
    | Annotated[ToolUseBlock, Tag("tool_use")]
    | Annotated[ToolResultBlock, Tag("tool_result")],
    Discriminator(type_of()),
    supported_types("content blocks", ("text", "thinking", "tool_use", "tool_result")),
]

Content = Annotated[
    Annotated[str, Tag("<text>")] | Annotated[list[Block], Tag("<blocks>")],
    Discriminator(_shape_of),
]


class Message(ApiModel):
    """A turn; adjacent turns of one role are merged."""

    role: Literal["user", "assistant", "system"]
    content: Content

    def blocks(self) -> list[Block]:
        """The content as a list of blocks."""
        if isinstance(self.content, str):
            return [TextBlock(type="text", text=self.content)]
        return self.content


class Tool(ApiModel):
    """A client tool. Its schema is enforced from the call's first character."""

    type: Literal["custom"] = "custom"
    name: str = Field(pattern=r"^[A-Za-z0-9_.:-]{1,256}$")
    description: str | None = None
    input_schema: dict[str, Any]

    # Tool input is always streamed eagerly and is always valid.
    NO_EFFECT: ClassVar = _CACHED | {"eager_input_streaming", "strict"}
    UNSUPPORTED: ClassVar = {
        "allowed_callers": (["direct"],),
        "defer_loading": (False,),
        "input_examples": ([],),
    }
    WARNED: ClassVar = {
        "allowed_callers": "there are no built-in tools that could call it",
        "defer_loading": "all tools are shown to the model",
        "input_examples": "examples aren't shown to the model",
    }
    PATH: ClassVar = "tools"

    def offered(self, place: str) -> OfferedTool:
        """The tool of the body's path ``place``."""
        function: dict[str, Any] = {"name": self.name, "parameters": self.input_schema}
        if self.description is not None:
            function["description"] = self.description
        return offered_function(function, f"{place}.input_schema")


Tools = Annotated[
    list[
        Annotated[
            Annotated[Tool, Tag("<custom>")] | Annotated[BuiltInTool, Tag(BUILT_IN)],
            Discriminator(tool_type("custom")),
            supported_tools(("custom",), default="custom"),
        ]
    ],
    AfterValidator(warn_of_builtin_tools),
]


class ToolChoice(ApiModel):
    """Which tools may or must be called."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool = False


class Thinking(ApiModel):
    """Whether the model reasons before answering, and its token budget."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: Int | None = Field(default=None, ge=1)

    UNSUPPORTED: ClassVar = {"display": ("summarized",)}
    WARNED: ClassVar = {"display": "reasoning is shown in full"}
    PATH: ClassVar = "thinking"


class OutputFormat(ApiModel):
    """The schema of the answer's text."""

    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(ApiModel):
    """The format of the answer and the reasoning effort."""

    format: OutputFormat | None = None
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None

    WARNED: ClassVar = {"task_budget": "max_tokens bounds the answer"}
    PATH: ClassVar = "output_config"


_OTHER_ACCOUNTING = "this server has no accounts"


class CountTokensRequest(ApiModel):
    """The fields that determine the prompt; the body of ``count_tokens``."""

    model: str | None = None
    messages: list[Message] = Field(min_length=1)
    system: Text | None = None
    tools: Tools | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = None  # an earlier name of output_config.format

    NO_EFFECT: ClassVar = _CACHED | {"metadata"}
    UNSUPPORTED: ClassVar = {
        "mcp_servers": ([],),
        "service_tier": ("auto", "standard_only"),
        "speed": ("standard",),
    }
    WARNED: ClassVar = WARNED | {
        "billing_policy": _OTHER_ACCOUNTING,
        "compaction": NOTHING_CLEARED,
        "container": "there are no built-in tools that run in one",
        "context_management": NOTHING_CLEARED,
        "diagnostics": "there are none",
        "fallback_credit_token": _OTHER_ACCOUNTING,
        "fallbacks": "there is one model",
        "mcp_servers": "tools of servers are not offered to the model; send them as tools",
        "user_profile_id": _OTHER_ACCOUNTING,
        "workspace_id": _OTHER_ACCOUNTING,
    }


class MessagesRequest(CountTokensRequest, CallFields):
    """The body of a call."""

    max_tokens: Int = Field(ge=1)
    thread: dict[str, Any] | None = None
    stop_sequences: list[Annotated[str, Field(min_length=1, max_length=1024)]] | None = Field(
        default=None, max_length=8
    )

    FIELD_OF: ClassVar = {"stop": "stop_sequences"}

    def check(self) -> None:
        """Checks constraints that span several fields.

        A thread is refused with the error after which clients send the whole conversation.
        """
        thinking = self.thinking
        if thinking is not None and thinking.budget_tokens is not None:
            if thinking.type != "enabled":
                raise InvalidParameterError(
                    "thinking.budget_tokens belongs to the type 'enabled'",
                    param="thinking.budget_tokens",
                )
            if thinking.budget_tokens >= self.max_tokens:
                raise InvalidParameterError(
                    "thinking.budget_tokens must be below max_tokens",
                    param="thinking.budget_tokens",
                )
        if self.thread is not None:
            raise InvalidParameterError(
                "thread is not supported by this server; send the whole conversation",
                param="thread",
                code=THREAD_UNSUPPORTED,
            )

    def sampling_values(self) -> dict[str, Any]:
        values = super().sampling_values()
        if self.stop_sequences:
            values["stop"] = tuple(self.stop_sequences)
        return values

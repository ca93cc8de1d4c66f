"""``POST /v1/messages`` and ``/v1/messages/count_tokens``: Anthropic's bodies.

https://docs.anthropic.com/en/api/messages
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag

from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.server.protocol.base import THREAD_UNSUPPORTED, ApiModel, Int
from ramet.runtime.server.protocol.shared_fields import CallFields
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
    """Reasoning of an earlier answer; it is the client's own text, so no signature is needed."""

    type: Literal["thinking"]
    thinking: str

    NO_EFFECT: ClassVar = frozenset({"signature"})


class ToolUseBlock(ApiModel):
    """A call that an earlier answer made."""

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
"""Text, or blocks of nothing but text."""


class ToolResultBlock(ApiModel):
    """What a call has given."""

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
    """A turn; neighbouring turns of one role are one turn."""

    role: Literal["user", "assistant", "system"]
    content: Content

    def blocks(self) -> list[Block]:
        """The content as blocks; text alone is one."""
        if isinstance(self.content, str):
            return [TextBlock(type="text", text=self.content)]
        return self.content


class Tool(ApiModel):
    """A tool of the client's. Its schema is enforced from the call's first character on."""

    type: Literal["custom"] = "custom"
    name: str = Field(pattern=r"^[A-Za-z0-9_.:-]{1,256}$")
    description: str | None = None
    input_schema: dict[str, Any]

    # Input always streams as it comes, and is always valid.
    NO_EFFECT: ClassVar = _CACHED | {"eager_input_streaming", "strict"}
    UNSUPPORTED: ClassVar = {
        "allowed_callers": (["direct"],),
        "defer_loading": (False,),
        "input_examples": ([],),
    }

    def for_template(self) -> dict[str, Any]:
        """The tool in OpenAI's shape, which chat templates take."""
        function: dict[str, Any] = {"name": self.name, "parameters": self.input_schema}
        if self.description is not None:
            function["description"] = self.description
        return {"type": "function", "function": function}


class ToolChoice(ApiModel):
    """Whether tools are called: at will, surely, this one, or none."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool = False


class Thinking(ApiModel):
    """Whether the model reasons before it answers, and for how many tokens at most."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: Int | None = Field(default=None, ge=1)

    UNSUPPORTED: ClassVar = {"display": ("summarized",)}


class OutputFormat(ApiModel):
    """The schema that the text of the answer is held to."""

    type: Literal["json_schema"]
    schema_: dict[str, Any] = Field(alias="schema")


class OutputConfig(ApiModel):
    """The form of the answer, and the effort put into it."""

    format: OutputFormat | None = None
    effort: Literal["low", "medium", "high", "xhigh"] | None = None


class CountTokensRequest(ApiModel):
    """A conversation, to count; also the part of a call that makes the prompt."""

    model: str | None = None
    messages: list[Message] = Field(min_length=1)
    system: Text | None = None
    tools: list[Annotated[Tool, supported_types("tools", ("custom",), default="custom")]] | None = (
        None
    )
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None

    NO_EFFECT: ClassVar = _CACHED | {"metadata"}
    UNSUPPORTED: ClassVar = {
        "billing_policy": (),
        "compaction": (),
        "container": (),
        "context_management": (),
        "diagnostics": (),
        "fallback_credit_token": (),
        "fallbacks": (),
        "inference_geo": (),
        "mcp_servers": ([],),
        "output_format": (),
        "service_tier": ("auto", "standard_only"),
        "speed": ("standard",),
        "user_profile_id": (),
        "workspace_id": (),
    }


class MessagesRequest(CountTokensRequest, CallFields):
    """The body of a call."""

    max_tokens: Int = Field(ge=1)
    thread: dict[str, Any] | None = None
    stop_sequences: list[Annotated[str, Field(min_length=1, max_length=1024)]] | None = Field(
        default=None, max_length=8
    )

    def check(self) -> None:
        """Refuses what no field can tell alone.

        A thread is refused in the way upon which clients send the whole conversation.
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

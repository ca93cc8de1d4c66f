"""``POST /v1/responses``: OpenAI's body.

https://platform.openai.com/docs/api-reference/responses
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag

from ramet.grammars.constraints import JsonObject
from ramet.grammars.constraints.writing import answer_schema
from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.server.openai.responses.items import Input
from ramet.runtime.server.protocol.base import ApiModel, Int
from ramet.runtime.server.protocol.param_paths import RequestedConstraint
from ramet.runtime.server.protocol.shared_fields import NO_EFFECT, CallFields
from ramet.runtime.server.protocol.tagged_unions import supported_types, type_of

LOGPROBS = "message.output_text.logprobs"


class FunctionTool(ApiModel):
    """A function that the model may call. Its schema is enforced, strict or not."""

    type: Literal["function"]
    name: str = Field(pattern=r"^[A-Za-z0-9_.:-]{1,256}$")
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    UNSUPPORTED: ClassVar = {
        "allowed_callers": (["direct"],),
        "async": (False,),
        "defer_loading": (False,),
        "output_schema": (),
    }

    def for_template(self) -> dict[str, Any]:
        """The tool in the shape of chat completions, for chat templates."""
        function = self.model_dump(exclude_none=True, exclude={"type", "strict"})
        return {"type": "function", "function": function}


class NamedTool(ApiModel):
    """``tool_choice`` that requires one function."""

    type: Literal["function"]
    name: str


class AllowedTools(ApiModel):
    """``tool_choice`` that allows a subset of the tools; the prompt has all."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: list[NamedTool] = Field(min_length=1)


ToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("<word>")]
    | Annotated[NamedTool, Tag("<function>")]
    | Annotated[AllowedTools, Tag("<allowed_tools>")],
    Discriminator(lambda choice: "<word>" if isinstance(choice, str) else f"<{type_of()(choice)}>"),
    supported_types("choices", ("function", "allowed_tools")),
]


class TextFormat(ApiModel):
    """The format that the text must have."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    description: str | None = None
    strict: bool | None = None

    def requested_constraint(self, field: str) -> RequestedConstraint | None:
        """Its constraint, as for ``response_format`` of chat completions."""
        if self.type == "json_schema" and (self.name is None or self.schema_ is None):
            raise InvalidParameterError(
                "text.format of type json_schema needs a name and a schema", param="text.format"
            )
        if self.type == "text" and self.schema_ is not None:
            raise InvalidParameterError(
                f"text.format has a schema, but its type is {self.type!r}", param="text.format"
            )
        if self.schema_ is not None:
            return RequestedConstraint(answer_schema(self.schema_), f"{field}.schema")
        return RequestedConstraint(JsonObject(), field) if self.type == "json_object" else None


class TextConfig(ApiModel):
    """Options of the text."""

    format: TextFormat = TextFormat(type="text")

    UNSUPPORTED: ClassVar = {"verbosity": ("medium",)}


class Reasoning(ApiModel):
    """The reasoning effort. Reasoning is returned in full, so there are no summaries."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None

    UNSUPPORTED: ClassVar = {
        "context": (),
        "generate_summary": (),
        "mode": (),
        "summary": (),
    }


class StreamOptions(ApiModel):
    """Padding against traffic analysis, which this server doesn't do."""

    UNSUPPORTED: ClassVar = {"include_obfuscation": (False,)}


class InputTokensRequest(ApiModel):
    """The fields that determine the prompt: ``input`` is text or items after a stored response.

    The body of ``POST /v1/responses/input_tokens``, and a part of that of a response.
    """

    model: str | None = None
    input: Input
    instructions: str | None = None
    parallel_tool_calls: bool = True
    previous_response_id: str | None = None
    reasoning: Reasoning | None = None
    text: TextConfig = TextConfig()
    tool_choice: ToolChoice | None = None
    tools: list[Annotated[FunctionTool, supported_types("tools", ("function",))]] | None = None

    UNSUPPORTED: ClassVar = {
        "conversation": (),
        "personality": (),
        "truncation": ("disabled",),
    }


class ResponsesRequest(InputTokensRequest, CallFields):
    """The body of a response."""

    include: list[str] | None = None
    max_output_tokens: Int | None = Field(default=None, ge=1)
    metadata: (
        dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]] | None
    ) = Field(default=None, max_length=16)
    seed: Int | None = None
    store: bool = True
    stream_options: StreamOptions | None = None
    top_logprobs: Int | None = Field(default=None, ge=0, le=20)

    FIELD_OF: ClassVar = {"max_tokens": "max_output_tokens"}
    # max_tool_calls counts calls of built-in tools, of which there are none.
    NO_EFFECT: ClassVar = NO_EFFECT - {"metadata", "store"} | {"max_tool_calls"}
    UNSUPPORTED: ClassVar = InputTokensRequest.UNSUPPORTED | {
        "access_programs": (),
        "background": (False,),
        "background_options": (),
        "context_management": ([],),
        "image": (),
        "moderation": (),
        "prompt": (),
        "service_tier": ("auto", "default"),
    }

    @property
    def wants_logprobs(self) -> bool:
        """Whether ``include`` requests log-probabilities, its only supported value."""
        for name in self.include or ():
            if name != LOGPROBS:
                raise InvalidParameterError(
                    f"include: {name!r} is not supported by this server; supported: {LOGPROBS}",
                    param="include",
                    code="unsupported_parameter",
                )
        return bool(self.include)

    def sampling_values(self) -> dict[str, Any]:
        values = super().sampling_values()
        if self.max_output_tokens is not None:
            values["max_tokens"] = self.max_output_tokens
        if self.wants_logprobs:
            values["logprobs"] = self.top_logprobs or 0
        elif self.top_logprobs:
            raise InvalidParameterError(
                f"top_logprobs needs include: ['{LOGPROBS}']", param="top_logprobs"
            )
        return values

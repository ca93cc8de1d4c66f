"""``POST /v1/responses``: OpenAI's body.

https://platform.openai.com/docs/api-reference/responses
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)

from ramet.grammars.constraints import Ebnf, JsonObject, Regex
from ramet.grammars.constraints.writing import answer_schema
from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.chat.offered_tools import (
    OfferedTool,
    model_name,
    offered_custom_tool,
    offered_function,
)
from ramet.runtime.chat.param_paths import RequestedConstraint
from ramet.runtime.server.openai.responses.items import Input
from ramet.runtime.server.protocol.base import MINUS_ONE_IS_ABSENT, ApiModel, Int, warnings_of
from ramet.runtime.server.protocol.builtin_tools import (
    BUILT_IN,
    BuiltInTool,
    supported_tools,
    tool_type,
    warn_of_builtin_tools,
)
from ramet.runtime.server.protocol.custom_tools import TextGrammar
from ramet.runtime.server.protocol.shared_fields import (
    NO_EFFECT,
    NO_PADDING,
    NOTHING_CLEARED,
    WARNED,
    CallFields,
)
from ramet.runtime.server.protocol.tagged_unions import supported_types, type_of

LOGPROBS = "message.output_text.logprobs"
_ABSENT_PARTS = frozenset(
    {
        "code_interpreter_call.outputs",
        "computer_call_output.output.image_url",
        "file_search_call.results",
        "message.input_image.image_url",
        "reasoning.encrypted_content",
        "web_search_call.action.sources",
        "web_search_call.results",
    }
)
"""Further parts that ``include`` may ask for; no answer of this server has them."""

OPTIONS_OF_TOOLS = {
    "allowed_callers": "there are no built-in tools that could call it",
    "async": "calls are answered by the client, whenever it does",
    "defer_loading": "all tools are shown to the model",
    "output_schema": "results are taken as they are",
}


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
    }
    WARNED: ClassVar = OPTIONS_OF_TOOLS
    PATH: ClassVar = "tools"

    def offered(self, place: str, namespace: str | None = None) -> OfferedTool:
        """The tool of the body's path ``place``."""
        function = self.model_dump(exclude_none=True, exclude={"type", "strict"})
        return offered_function(function, f"{place}.parameters", namespace=namespace)


class CustomFormat(ApiModel):
    """A custom tool's input format: any text, or a grammar's."""

    type: Literal["text", "grammar"]
    syntax: Literal["lark", "regex"] | None = None
    definition: str | None = None

    @model_validator(mode="after")
    def _has_its_grammar(self) -> Self:
        has_grammar = self.syntax is not None and self.definition is not None
        if (self.type == "grammar") != has_grammar:
            raise ValueError("syntax and definition belong to the type 'grammar', which needs both")
        return self

    def constraint(self) -> Ebnf | Regex | None:
        """The constraint of the text; None: any text."""
        if self.syntax is None or self.definition is None:
            return None
        return TextGrammar(syntax=self.syntax, definition=self.definition).constraint()


class CustomTool(ApiModel):
    """A tool that takes one text."""

    type: Literal["custom"]
    name: str = Field(pattern=r"^[A-Za-z0-9_.:-]{1,256}$")
    description: str | None = None
    format: CustomFormat = CustomFormat(type="text")

    UNSUPPORTED: ClassVar = FunctionTool.UNSUPPORTED
    WARNED: ClassVar = OPTIONS_OF_TOOLS
    PATH: ClassVar = "tools"

    def offered(self, place: str, namespace: str | None = None) -> OfferedTool:
        """The tool of the body's path ``place``."""
        return offered_custom_tool(
            self.name,
            self.description,
            self.format.constraint(),
            f"{place}.format.definition",
            namespace=namespace,
        )


OwnTool = Annotated[
    Annotated[FunctionTool, Tag("<function>")]
    | Annotated[CustomTool, Tag("<custom>")]
    | Annotated[BuiltInTool, Tag(BUILT_IN)],
    Discriminator(tool_type()),
    supported_tools(("function", "custom")),
]


class NamespaceTool(ApiModel):
    """Tools whose names are their own within a namespace."""

    type: Literal["namespace"]
    name: str = Field(pattern=r"^[A-Za-z0-9_.:-]{1,256}$")
    description: str | None = None
    tools: list[OwnTool]


Tools = Annotated[
    list[
        Annotated[
            Annotated[FunctionTool, Tag("<function>")]
            | Annotated[CustomTool, Tag("<custom>")]
            | Annotated[NamespaceTool, Tag("<namespace>")]
            | Annotated[BuiltInTool, Tag(BUILT_IN)],
            Discriminator(tool_type()),
            supported_tools(("function", "custom", "namespace")),
        ]
    ],
    AfterValidator(warn_of_builtin_tools),
]


def offered_tools(tools: Tools | None) -> list[OfferedTool]:
    """The tools that the model is shown; those of namespaces under names that have both."""
    offered: list[OfferedTool] = []
    for index, tool in enumerate(tools or ()):
        place = f"tools[{index}]"
        if isinstance(tool, NamespaceTool):
            for position, inner in enumerate(tool.tools):
                if not isinstance(inner, BuiltInTool):
                    offered.append(inner.offered(f"{place}.tools[{position}]", tool.name))
        elif not isinstance(tool, BuiltInTool):
            offered.append(tool.offered(place))
    return offered


class NamedTool(ApiModel):
    """``tool_choice`` that requires one tool."""

    type: Literal["function", "custom"]
    name: str
    namespace: str | None = None

    @property
    def model_name(self) -> str:
        """The name that the model writes."""
        return model_name(self.name, self.namespace)


class AllowedTools(ApiModel):
    """``tool_choice`` that allows a subset of the tools; the prompt has all."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: list[NamedTool] = Field(min_length=1)


def _kind_of_choice(choice: Any) -> str:
    if isinstance(choice, str):
        return "<word>"
    return "<allowed_tools>" if type_of()(choice) == "allowed_tools" else "<one>"


ToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("<word>")]
    | Annotated[NamedTool, Tag("<one>")]
    | Annotated[AllowedTools, Tag("<allowed_tools>")],
    Discriminator(_kind_of_choice),
    supported_types("choices", ("function", "custom", "allowed_tools")),
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
    WARNED: ClassVar = {"verbosity": WARNED["verbosity"]}
    PATH: ClassVar = "text"


_IN_FULL = "reasoning is returned in full"


class Reasoning(ApiModel):
    """The reasoning effort. Reasoning is returned in full, so there are no summaries."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None

    WARNED: ClassVar = {
        "context": "earlier reasoning is shown as the chat template does",
        "generate_summary": _IN_FULL,
        "mode": "this model has no modes of reasoning",
        "summary": _IN_FULL,
    }
    PATH: ClassVar = "reasoning"


class StreamOptions(ApiModel):
    """Padding against traffic analysis, which this server doesn't do."""

    UNSUPPORTED: ClassVar = {"include_obfuscation": (False,)}
    WARNED: ClassVar = NO_PADDING
    PATH: ClassVar = "stream_options"


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
    tools: Tools | None = None

    UNSUPPORTED: ClassVar = {"conversation": (), "truncation": ("disabled",)}
    WARNED: ClassVar = {
        "personality": "this model has no personalities",
        "truncation": "a conversation that doesn't fit is refused, never cut",
    }


class ResponsesRequest(InputTokensRequest, CallFields):
    """The body of a response."""

    include: list[str] | None = None
    max_output_tokens: Annotated[Annotated[Int, Field(ge=1)] | None, MINUS_ONE_IS_ABSENT] = None
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
        "background": (False,),
        "image": (),
        "prompt": (),
        "service_tier": ("auto", "default"),
    }
    WARNED: ClassVar = (
        WARNED
        | InputTokensRequest.WARNED
        | {
            "access_programs": "there are no built-in tools",
            "background_options": "responses don't run in the background",
            "context_management": NOTHING_CLEARED,
            "moderation": "this server has no moderation",
        }
    )

    @field_validator("include", mode="after")
    @classmethod
    def _warn_of_absent_parts(
        cls, include: list[str] | None, info: ValidationInfo
    ) -> list[str] | None:
        """Accepts parts that this server's answers never have, with a warning."""
        for name in include or ():
            if name == LOGPROBS:
                continue
            if name not in _ABSENT_PARTS:
                raise ValueError(f"{name!r} is not supported; supported: {LOGPROBS}")
            warnings_of(info).add("include", f"answers have no {name}")
        return include

    @property
    def wants_logprobs(self) -> bool:
        """Whether ``include`` requests log-probabilities."""
        return LOGPROBS in (self.include or ())

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

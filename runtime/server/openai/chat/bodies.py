"""``POST /v1/chat/completions``: OpenAI's body with vLLM's extensions and Ramet's."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.chat.conversation import Conversation
from ramet.runtime.chat.conversation import ToolChoice as ChosenTools
from ramet.runtime.chat.offered_tools import (
    OfferedTool,
    custom_arguments,
    offered_custom_tool,
    offered_function,
    past_call,
)
from ramet.runtime.server.protocol.base import ApiModel, Int, TokenLimit
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
    NOTHING_CLEARED,
    WARNED,
    GenerationRequest,
)
from ramet.runtime.server.protocol.tagged_unions import supported_types, type_of


class TextPart(ApiModel):
    """A part of a message's content; only text is supported."""

    type: Literal["text"]
    text: str

    # Prompt caching is always on here.
    NO_EFFECT: ClassVar = frozenset({"cache_control"})
    UNSUPPORTED: ClassVar = {
        "image_url": (),
        "input_audio": (),
        "audio_url": (),
        "video_url": (),
        "file": (),
        "refusal": (),
    }


def _kind_of_content(content: Any) -> str:
    return "<parts>" if isinstance(content, list) else "<text>"


Content = Annotated[
    Annotated[str, Tag("<text>")] | Annotated[list[TextPart], Tag("<parts>")],
    Discriminator(_kind_of_content),
]


class FunctionCall(ApiModel):
    """The function and the JSON text of its arguments, as the model wrote it."""

    name: str
    arguments: str = ""


class CustomCall(ApiModel):
    """The custom tool and its text."""

    name: str
    input: str = ""


class ToolCall(ApiModel):
    """A call in an assistant message of the history."""

    id: str | None = None
    type: Literal["function"] = "function"
    function: FunctionCall
    index: Int | None = None


class CustomToolCall(ApiModel):
    """A call of a custom tool in an assistant message of the history."""

    id: str | None = None
    type: Literal["custom"]
    custom: CustomCall
    index: Int | None = None

    def for_template(self) -> dict[str, Any]:
        """The call as the model wrote it: a function of one text."""
        return past_call(self.id, self.custom.name, custom_arguments(self.custom.input))


class Message(ApiModel):
    """A message of the conversation; OpenAI's answers have the same shape."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content | None = None
    name: str | None = None
    tool_calls: (
        list[
            Annotated[
                Annotated[ToolCall, Tag("<function>")] | Annotated[CustomToolCall, Tag("<custom>")],
                Discriminator(lambda call: f"<{type_of('function')(call)}>"),
                supported_types("tool calls", ("function", "custom"), default="function"),
            ]
        ]
        | None
    ) = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None

    # What answers carry and clients send back.
    NO_EFFECT: ClassVar = frozenset({"annotations"})
    UNSUPPORTED: ClassVar = {"refusal": ("",), "audio": (), "function_call": ()}

    def for_template(self) -> dict[str, Any]:
        """The message for chat templates, without missing fields."""
        shown = self.model_dump(exclude_none=True)
        if self.tool_calls is not None:
            shown["tool_calls"] = [
                call.for_template() if isinstance(call, CustomToolCall) else shown_call
                for call, shown_call in zip(self.tool_calls, shown["tool_calls"], strict=True)
            ]
        if "reasoning" in shown:
            shown.setdefault("reasoning_content", shown.pop("reasoning"))
        return shown


class Function(ApiModel):
    """A function that the model may call; ``parameters`` is the schema of its arguments."""

    name: str = Field(pattern=r"^[A-Za-z0-9_.:-]{1,256}$")
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(ApiModel):
    """A function as a tool."""

    type: Literal["function"]
    function: Function

    NO_EFFECT: ClassVar = frozenset({"cache_control"})

    def offered(self, place: str) -> OfferedTool:
        """The tool of the body's path ``place``."""
        function = self.function.model_dump(exclude_none=True)
        return offered_function(function, f"{place}.function.parameters")


class TextFormat(ApiModel):
    """A custom tool's input format: any text, or a grammar's."""

    type: Literal["text", "grammar"]
    grammar: TextGrammar | None = None

    @model_validator(mode="after")
    def _has_its_grammar(self) -> Self:
        if (self.type == "grammar") != (self.grammar is not None):
            raise ValueError("a grammar is given if, and only if, the type is 'grammar'")
        return self


class CustomFunction(ApiModel):
    """A custom tool's name, description and format."""

    name: str = Field(pattern=r"^[A-Za-z0-9_.:-]{1,256}$")
    description: str | None = None
    format: TextFormat = TextFormat(type="text")


class CustomTool(ApiModel):
    """A tool that takes one text."""

    type: Literal["custom"]
    custom: CustomFunction

    def offered(self, place: str) -> OfferedTool:
        """The tool of the body's path ``place``."""
        own = self.custom
        grammar = own.format.grammar.constraint() if own.format.grammar else None
        field = f"{place}.custom.format.grammar.definition"
        return offered_custom_tool(own.name, own.description, grammar, field)


Tools = Annotated[
    list[
        Annotated[
            Annotated[Tool, Tag("<function>")]
            | Annotated[CustomTool, Tag("<custom>")]
            | Annotated[BuiltInTool, Tag(BUILT_IN)],
            Discriminator(tool_type()),
            supported_tools(("function", "custom")),
        ]
    ],
    AfterValidator(warn_of_builtin_tools),
]


def offered_tools(tools: Tools | None) -> list[OfferedTool]:
    """The tools that the model is shown."""
    return [
        tool.offered(f"tools[{index}]")
        for index, tool in enumerate(tools or ())
        if not isinstance(tool, BuiltInTool)
    ]


class ToolName(ApiModel):
    name: str


class NamedFunction(ApiModel):
    """A function in ``tool_choice``."""

    type: Literal["function"]
    function: ToolName

    @property
    def name(self) -> str:
        return self.function.name


class NamedCustomTool(ApiModel):
    """A custom tool in ``tool_choice``."""

    type: Literal["custom"]
    custom: ToolName

    @property
    def name(self) -> str:
        return self.custom.name


NamedTool = Annotated[
    Annotated[NamedFunction, Tag("<function>")] | Annotated[NamedCustomTool, Tag("<custom>")],
    Discriminator(lambda tool: f"<{type_of()(tool)}>"),
    supported_types("tools", ("function", "custom")),
]


class AllowedTools(ApiModel):
    """A subset of the tools, and whether one must be called."""

    mode: Literal["auto", "required"]
    tools: list[NamedTool] = Field(min_length=1)


class AllowedToolsChoice(ApiModel):
    """``tool_choice`` that allows a subset of the tools; the prompt has all."""

    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


ToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("<word>")]
    | Annotated[NamedFunction, Tag("<function>")]
    | Annotated[NamedCustomTool, Tag("<custom>")]
    | Annotated[AllowedToolsChoice, Tag("<allowed_tools>")],
    Discriminator(lambda choice: "<word>" if isinstance(choice, str) else f"<{type_of()(choice)}>"),
    supported_types("choices", ("function", "custom", "allowed_tools")),
]


class ChatCompletionRequest(GenerationRequest):
    """The body. Shared fields are documented in the OpenAI API reference."""

    messages: list[Message]
    max_completion_tokens: TokenLimit = None
    logprobs: bool | None = None
    top_logprobs: Int | None = None
    return_token_origins: bool = False
    tools: Tools | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool = True
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    thinking_token_budget: Int | None = Field(default=None, ge=1)
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    chat_template_kwargs: dict[str, Any] | None = None

    OWN_MEANING: ClassVar = frozenset({"logprobs"})
    NO_EFFECT: ClassVar = NO_EFFECT
    UNSUPPORTED: ClassVar = {
        "audio": (),
        "function_call": ("none",),
        "functions": ([],),
        "modalities": (["text"], []),
        "moderation": (),
        "service_tier": ("auto", "default"),
        "verbosity": ("medium",),
        "best_of": (1,),
        "echo": (False,),
        "use_beam_search": (False,),
        "length_penalty": (1.0,),
        "add_special_tokens": (False,),
        "chat_template": (),
        "documents": ([],),
        "include_reasoning": (True,),
        "return_tokens_as_token_ids": (False,),
        "spaces_between_special_tokens": (True,),
        "truncate_prompt_tokens": (),
        "vllm_xargs": ({},),
        "guided_whitespace_pattern": (),
    }
    WARNED: ClassVar = WARNED | {
        "moderation": "this server has no moderation",
        "prediction": "drafts are made from the prompt and the cache",
        "web_search_options": "the built-in tool is not offered to the model",
        "context_management": NOTHING_CLEARED,
        "mm_processor_kwargs": "there are no images",
    }

    def conversation(self) -> Conversation:
        """The body's conversation."""
        _check_results(self.messages)
        allowed: tuple[str, ...] | None = None
        choice: ChosenTools = "auto"
        match self.tool_choice:
            case str(word):
                choice = word
            case NamedFunction(name=name) | NamedCustomTool(name=name):
                choice = ("tool", name)
            case AllowedToolsChoice(allowed_tools=some):
                choice = some.mode
                allowed = tuple(tool.name for tool in some.tools)
        return Conversation(
            messages=[message.for_template() for message in self.messages],
            tools=offered_tools(self.tools),
            tool_choice=choice,
            allowed_tools=allowed,
            parallel_tool_calls=self.parallel_tool_calls,
            constraint=self.requested_constraint(),
            template_variables=self.chat_template_kwargs or {},
            reasoning_effort=self.reasoning_effort,
            thinking_budget=self.thinking_token_budget,
            add_generation_prompt=self.add_generation_prompt,
            continue_final_message=self.continue_final_message,
        )

    def field_of(self, param: str) -> str:
        if param == "max_tokens" and self.max_tokens is None:
            return "max_completion_tokens"
        return super().field_of(param)

    def sampling_values(self) -> dict[str, Any]:
        values = super().sampling_values()
        if self.max_completion_tokens is not None:
            if self.max_tokens not in (None, self.max_completion_tokens):
                raise InvalidParameterError(
                    "max_tokens and max_completion_tokens differ; give one of them",
                    param="max_completion_tokens",
                )
            values["max_tokens"] = self.max_completion_tokens
        if self.logprobs:
            values["logprobs"] = self.top_logprobs or 0
        elif self.top_logprobs:
            raise InvalidParameterError("top_logprobs needs logprobs: true", param="top_logprobs")
        return values


def _check_results(messages: list[Message]) -> None:
    """Checks that each tool's result names a call of an earlier message.

    Calls without an id, which some clients send, can't be named.
    """
    ids: set[str | None] = set()
    for index, message in enumerate(messages):
        ids.update(call.id for call in message.tool_calls or ())
        if message.role != "tool" or None in ids:
            continue
        param = f"messages[{index}].tool_call_id"
        if message.tool_call_id is None:
            raise InvalidParameterError(
                f"{param} is required", param=param, code="missing_required_parameter"
            )
        if message.tool_call_id not in ids:
            raise InvalidParameterError(
                f"{param}: no earlier message has a tool call with the id {message.tool_call_id!r}",
                param=param,
            )

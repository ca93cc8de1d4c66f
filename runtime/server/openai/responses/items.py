"""The input items of OpenAI's Responses API."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Discriminator, Tag

from ramet.runtime.chat.offered_tools import custom_arguments, model_name
from ramet.runtime.server.protocol.base import ApiModel
from ramet.runtime.server.protocol.tagged_unions import supported_types, type_of

_ECHOED = frozenset({"id", "status"})
"""Fields of output items that clients send back."""


class TextPart(ApiModel):
    """Text of the user or of an earlier answer."""

    type: Literal["input_text", "output_text"]
    text: str

    NO_EFFECT: ClassVar = frozenset({"annotations", "logprobs", "parsed"})
    UNSUPPORTED: ClassVar = {"prompt_cache_breakpoint": ()}


class RefusalPart(ApiModel):
    """An earlier answer's refusal, which is text to the model."""

    type: Literal["refusal"]
    refusal: str

    @property
    def text(self) -> str:
        return self.refusal


Part = Annotated[
    Annotated[TextPart, Tag("<text>")] | Annotated[RefusalPart, Tag("<refusal>")],
    Discriminator(lambda part: "<refusal>" if type_of()(part) == "refusal" else "<text>"),
    supported_types("content parts", ("input_text", "output_text", "refusal")),
]


def _shape_of(content: object) -> str:
    return "<parts>" if isinstance(content, list) else "<text>"


Content = Annotated[
    Annotated[str, Tag("<text>")] | Annotated[list[Part], Tag("<parts>")],
    Discriminator(_shape_of),
]
"""Text, or a list of text parts."""


def plain_text(content: Content) -> str:
    """Joins content to one text."""
    return content if isinstance(content, str) else "".join(part.text for part in content)


class MessageItem(ApiModel):
    """A message."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: Content

    NO_EFFECT: ClassVar = _ECHOED
    WARNED: ClassVar = {"phase": "this model's messages have no phases"}
    UNSUPPORTED: ClassVar = {"phase": ("final_answer",)}
    PATH: ClassVar = "input"


class FunctionCallItem(ApiModel):
    """A call of an earlier answer."""

    type: Literal["function_call"]
    call_id: str
    name: str
    namespace: str | None = None
    arguments: str

    NO_EFFECT: ClassVar = _ECHOED | {"parsed_arguments"}
    UNSUPPORTED: ClassVar = {"async": (False,), "caller": ({"type": "direct"},)}

    @property
    def model_name(self) -> str:
        """The name that the model wrote."""
        return model_name(self.name, self.namespace)


class CustomCallItem(ApiModel):
    """A custom tool's call of an earlier answer."""

    type: Literal["custom_tool_call"]
    call_id: str
    name: str
    namespace: str | None = None
    input: str

    NO_EFFECT: ClassVar = _ECHOED
    UNSUPPORTED: ClassVar = FunctionCallItem.UNSUPPORTED

    @property
    def model_name(self) -> str:
        """The name that the model wrote."""
        return model_name(self.name, self.namespace)

    @property
    def arguments(self) -> str:
        """The JSON arguments that the model wrote."""
        return custom_arguments(self.input)


class CallOutputItem(ApiModel):
    """The result of a call."""

    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: str
    output: Content

    NO_EFFECT: ClassVar = _ECHOED | {"name", "namespace"}
    UNSUPPORTED: ClassVar = {"caller": ({"type": "direct"},)}


class ReasoningText(ApiModel):
    """Plain-text reasoning."""

    type: Literal["reasoning_text", "summary_text"]
    text: str


class ReasoningItem(ApiModel):
    """The reasoning of an earlier answer; its summary if the content is missing."""

    type: Literal["reasoning"]
    content: list[ReasoningText] | None = None
    summary: list[ReasoningText] | None = None

    NO_EFFECT: ClassVar = _ECHOED
    WARNED: ClassVar = {"encrypted_content": "this server can't read encrypted reasoning"}
    PATH: ClassVar = "input"

    @property
    def text(self) -> str:
        return "\n".join(part.text for part in self.content or self.summary or ())


def _kind_of_item(item: object) -> str:
    kind = type_of("message")(item)
    return "<output>" if kind.endswith("_output") else f"<{kind}>"


Item = Annotated[
    Annotated[MessageItem, Tag("<message>")]
    | Annotated[FunctionCallItem, Tag("<function_call>")]
    | Annotated[CustomCallItem, Tag("<custom_tool_call>")]
    | Annotated[CallOutputItem, Tag("<output>")]
    | Annotated[ReasoningItem, Tag("<reasoning>")],
    Discriminator(_kind_of_item),
    supported_types(
        "input items",
        (
            "message",
            "function_call",
            "function_call_output",
            "custom_tool_call",
            "custom_tool_call_output",
            "reasoning",
        ),
        default="message",
    ),
]


def _shape_of_input(value: object) -> str:
    return "<items>" if isinstance(value, list) else "<text>"


Input = Annotated[
    Annotated[str, Tag("<text>")] | Annotated[list[Item], Tag("<items>")],
    Discriminator(_shape_of_input),
]
"""A user's text, or items."""

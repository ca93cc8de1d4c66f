"""Plans a chat call: its prompt, constraint and parser, for every chat API."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from ramet.grammars.constraints import Constraint, Part
from ramet.runtime.api.errors import EmptyPromptError, InvalidParameterError
from ramet.runtime.api.off_loop import INLINE_LEN, run_off_loop, stop_if_gone
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.chat.channel_messages import channel_messages, described_tools
from ramet.runtime.chat.conversation import Conversation
from ramet.runtime.chat.field_warnings import FieldWarnings
from ramet.runtime.chat.offered_tools import OfferedTool
from ramet.runtime.chat.output_grammar import (
    channels_constraint,
    chat_constraint,
    text_without_calls,
)
from ramet.runtime.chat.param_paths import Origins
from ramet.runtime.chat.past_calls import (
    has_calls,
    numbered_calls,
    results_after_calls,
)
from ramet.runtime.chat.reasoning_budget import ReasoningBudget
from ramet.runtime.chat.settings import ChatSettings
from ramet.runtime.chat.tool_grammar import ToolGrammar
from ramet.runtime.chat.tool_schemas import ToolSchema, tool_schemas
from ramet.runtime.parsers import (
    REASONING_FORMATS,
    TOOL_FORMATS,
    ChannelParser,
    ChatParser,
    ChatReader,
    ReasoningFormat,
    ToolFormat,
    detect_reasoning_format,
    detect_tool_format,
    read_tool_format,
)
from ramet.runtime.tokenizer import ChatTemplate, Tokenizer, fold_tools
from ramet.runtime.tokenizer.encoders import PromptPiece
from ramet.runtime.tokenizer.prompt_limit import PromptLimit

Format = TypeVar("Format")

_TAIL_TOKENS = 32
"""Length of a prompt's end that shows whether the template opens or closes the reasoning."""


_NEVER_REASONS = "this model doesn't reason"


@dataclass(frozen=True, slots=True)
class ChatPlan:
    """The way in which a conversation is continued.

    Attributes:
        prompt: the prompt's token ids.
        constraint: of the output; None: unconstrained.
        reasoning: the tags of reasoning; None if none is expected.
        is_reasoning_open: the prompt ends inside reasoning.
        tool_format: the syntax of tool calls; None if none may be made.
        schemas: argument schemas by tool name.
        tools: the tools that may be called, by the names that the model writes.
        origins: the fields that the constraint's parts come from.
        in_channels: the output is a sequence of messages in channels.
        is_answer_open: the prompt ends inside the answer.
        shows_special: tags are control tokens, which must reach the parser as text.
        budget: bounds the reasoning; None: unbounded.
    """

    prompt: tuple[int, ...]
    constraint: Constraint | None = None
    reasoning: ReasoningFormat | None = None
    is_reasoning_open: bool = False
    tool_format: ToolFormat | None = None
    schemas: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    tools: Mapping[str, OfferedTool] = field(default_factory=dict)
    origins: Origins = field(default_factory=lambda: Origins("tools"))
    in_channels: bool = False
    is_answer_open: bool = False
    shows_special: bool = False
    budget: ReasoningBudget | None = None

    @property
    def has_tools(self) -> bool:
        """Whether tools may be called. No call is cut: it is completed within ``max_tokens``."""
        return self.tool_format is not None and self.constraint is not None

    def adapt(self, params: SamplingParams) -> SamplingParams:
        """Adapts the parameters to what the parser needs."""
        return replace(params, skip_special_tokens=False) if self.shows_special else params

    def parser(self) -> ChatReader:
        """Creates the parser of one choice."""
        if self.in_channels:
            has_tools = self.tool_format is not None
            return ChannelParser(has_tools=has_tools, is_answer_open=self.is_answer_open)
        return ChatParser(
            reasoning=self.reasoning,
            is_reasoning_open=self.is_reasoning_open,
            tools=self.tool_format,
            schemas=self.schemas,
        )


class ChatPlanner:
    """Plans chat calls for one model. Formats are detected from the template, unless configured.

    Raises:
        InvalidParameterError: the configuration names an unknown format.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: ChatTemplate | None,
        config: ChatSettings,
        max_context_len: int,
    ) -> None:
        source = template.source if template else None
        self._max_tools = config.max_tools
        self._tokenizer = tokenizer
        self._limit = PromptLimit(tokenizer, max_context_len)
        self._template = template
        self._tool_format, self._reasoning = _formats(source, config)
        self._in_channels = self._tool_format.style == "channels"

    @property
    def reasons(self) -> bool:
        """Whether the model reasons before it answers."""
        return self._reasoning is not None

    @property
    def template(self) -> ChatTemplate:
        """The template; ``ChatTemplateError`` if the model has none."""
        return self._template or ChatTemplate.of(self._tokenizer)

    async def prompt(self, conversation: Conversation) -> tuple[int, ...]:
        """Renders and encodes a conversation; long ones in a thread."""

        def encode() -> tuple[int, ...]:
            pieces = self.render(conversation)
            self._limit.check((text for text, _ in pieces), param="messages")
            stop_if_gone()
            return tuple(self._tokenizer.encode_pieces(pieces))

        ids = await run_off_loop(encode, is_long=_is_long(conversation))
        if not ids:
            raise EmptyPromptError("the chat template renders an empty prompt", param="messages")
        return ids

    def render(self, conversation: Conversation) -> list[PromptPiece]:
        """Prints a conversation, in pieces for ``Tokenizer.encode_pieces``."""
        template = self.template
        shown: Sequence[Mapping[str, Any]] = [tool.definition for tool in conversation.tools]
        printed = results_after_calls(conversation.messages)
        if "developer" not in template.source:
            printed = [_as_system(message) for message in printed]
        if self._tool_format.is_numbered:
            printed = numbered_calls(printed)
        if self._in_channels:
            printed, shown = channel_messages(printed), described_tools(shown)
        if not template.prints_tools:
            shown, printed = (), fold_tools(printed, shown, self._tool_format)
        return template.render(
            printed,
            tools=shown or None,
            add_generation_prompt=conversation.add_generation_prompt,
            continue_final_message=conversation.continue_final_message,
            variables=self._variables(conversation),
        )

    async def plan(
        self,
        conversation: Conversation,
        warnings: FieldWarnings,
        *,
        prompt: tuple[int, ...] | None = None,
    ) -> ChatPlan:
        """Plans one call; fields that the model can't follow are added to ``warnings``.

        ``prompt`` is the encoded conversation, if it is known.
        """
        tools = self._callable_tools(conversation)
        shuns_calls = not tools and bool(conversation.tools or has_calls(conversation.messages))
        if not tools and not conversation.keeps_tools:
            conversation = replace(conversation, tools=())
        prompt = prompt or await self.prompt(conversation)
        self._warn_of_reasoning(conversation, warnings)
        reasoning, is_open = self._expected_reasoning(prompt)
        if self._in_channels and conversation.continue_final_message:
            reasoning = None
        tool_format = self._tool_format if tools else None
        choice = conversation.tool_choice
        requested = conversation.constraint
        origins = Origins(requested.field if requested else "tools")
        answer = origins.add_constraint(requested) if requested else None
        if answer is None and shuns_calls:
            answer = text_without_calls(self._tool_format)
        calls = None
        if tool_format is not None:
            grammar = ToolGrammar(tool_format, tools, origins)
            calls = grammar.calls(
                choice,
                parallel=conversation.parallel_tool_calls,
                has_answer=answer is not None,
                max_calls=conversation.max_calls,
            )
        constraint_for = self._constraint_for(
            answer, calls, must_call=choice not in ("none", "auto"), conversation=conversation
        )

        def narrowed(reasoning: ReasoningFormat | None, is_open: bool) -> Constraint | None:
            constraint = constraint_for(reasoning, is_open)
            return None if constraint is None else origins.narrow(constraint)

        budget = None
        if conversation.thinking_budget is not None and self._reasoning is not None:
            if reasoning is None:
                raise _thinking_unsupported("has no reasoning left after this prompt")
            budget = ReasoningBudget(
                conversation.thinking_budget, reasoning, is_open, narrowed(None, False)
            )
        tags = [reasoning.begin] if reasoning else []
        tags += tool_format.marks if tool_format else ()
        controls = self._tokenizer.control_texts
        return ChatPlan(
            prompt,
            narrowed(reasoning, is_open),
            reasoning,
            is_reasoning_open=is_open,
            tool_format=tool_format,
            schemas={name: tool.schema for name, tool in tools.items()},
            tools={tool.model_name: tool for tool in conversation.tools},
            origins=origins,
            in_channels=self._in_channels,
            is_answer_open=conversation.continue_final_message,
            shows_special=self._in_channels or _has_any(tags, controls),
            budget=budget,
        )

    def _constraint_for(
        self,
        answer: Constraint | None,
        calls: Part | None,
        *,
        must_call: bool,
        conversation: Conversation,
    ) -> Callable[[ReasoningFormat | None, bool], Constraint | None]:
        """Returns a function of the expected reasoning, and whether it is open."""
        if not self._in_channels:
            return lambda reasoning, is_open: chat_constraint(
                answer, reasoning, is_reasoning_open=is_open, calls=calls, must_call=must_call
            )
        if conversation.continue_final_message:
            if must_call:
                raise InvalidParameterError(
                    "an answer that continues the last message can't be a tool call",
                    param="tool_choice",
                )
            return lambda *_: answer
        assert self._reasoning is not None
        own = self._reasoning
        return lambda reasoning, _: channels_constraint(
            answer, own, may_reason=reasoning is not None, calls=calls, must_call=must_call
        )

    def _callable_tools(self, conversation: Conversation) -> dict[str, ToolSchema]:
        """Argument schemas of the tools that may be called, by name."""
        choice = conversation.tool_choice
        num_tools = len(conversation.tools)
        if num_tools > self._max_tools:
            raise InvalidParameterError(
                f"{num_tools} tools exceed the limit of {self._max_tools}", param="tools"
            )
        schemas = tool_schemas(conversation.tools)
        if isinstance(choice, tuple) and choice[1] not in schemas:
            raise InvalidParameterError(
                f"tool_choice names {choice[1]!r}, which is not among the tools",
                param="tool_choice",
            )
        if choice == "required" and not schemas:
            raise InvalidParameterError(
                "tool_choice is 'required', but there are no tools", param="tool_choice"
            )
        allowed = conversation.allowed_tools
        if allowed is not None:
            for name in allowed:
                if name not in schemas:
                    raise InvalidParameterError(
                        f"tool_choice allows {name!r}, which is not among the tools",
                        param="tool_choice",
                    )
            schemas = {name: schemas[name] for name in dict.fromkeys(allowed)}
        return {} if choice == "none" else schemas

    def _expected_reasoning(self, prompt: tuple[int, ...]) -> tuple[ReasoningFormat | None, bool]:
        """The reasoning expected after a prompt, and whether the prompt opens it."""
        reasoning = self._reasoning
        if reasoning is None:
            return None, False
        tail = self._tokenizer.decode(prompt[-_TAIL_TOKENS:], skip_special=False).rstrip()
        if tail.endswith(reasoning.end):
            return None, False
        return reasoning, tail.endswith(reasoning.begin)

    def _variables(self, conversation: Conversation) -> dict[str, Any]:
        variables = dict(conversation.template_variables)
        if conversation.thinking is not None:
            variables |= self._thinking_variables(conversation.thinking)
        effort = conversation.reasoning_effort
        if effort is None:
            return variables
        if "reasoning_effort" in self.template.source:
            variables.setdefault("reasoning_effort", effort)
        elif "enable_thinking" in self.template.source:
            variables.setdefault("enable_thinking", effort != "none")
        return variables

    def _thinking_variables(self, thinking: bool) -> dict[str, Any]:
        """Variables that switch reasoning on or off.

        A model that always reasons can't be asked not to: its answer would differ from what the
        call asks for.
        """
        if "enable_thinking" in self.template.source:
            return {"enable_thinking": thinking}
        if not thinking and self._reasoning is not None:
            raise _thinking_unsupported("always reasons")
        return {}

    def _warn_of_reasoning(self, conversation: Conversation, warnings: FieldWarnings) -> None:
        """Adds the fields that ask a model that can't be asked to reason, or how much."""
        source = self.template.source
        has_switch = "enable_thinking" in source
        effort = conversation.reasoning_effort
        if effort not in (None, "none") and not has_switch and "reasoning_effort" not in source:
            reason = "this model has no levels of reasoning"
            warnings.add(conversation.effort_field, reason)
        wants = conversation.thinking or conversation.thinking_budget is not None
        if wants and not has_switch and self._reasoning is None:
            warnings.add(conversation.thinking_field, _NEVER_REASONS)


def _has_any(tags: Sequence[str], controls: Collection[str]) -> bool:
    """Whether a tag is, or holds, one of the vocabulary's control tokens."""
    return any(control in tag for tag in tags for control in controls if control)


def _formats(source: str | None, config: ChatSettings) -> tuple[ToolFormat, ReasoningFormat | None]:
    """Detects the tool and reasoning formats from the template, unless configured.

    Channels apply to both or to neither: configuring one of them sets the other.
    """
    tools, reasoning = detect_tool_format(source), detect_reasoning_format(source)
    if config.tool_format is not None:
        is_file = config.tool_format.endswith(".json")
        tools = (
            read_tool_format(config.tool_format)
            if is_file
            else _find_format(TOOL_FORMATS, config.tool_format, "tool_format")
        )
    if config.reasoning_format is not None:
        reasoning = _find_format(REASONING_FORMATS, config.reasoning_format, "reasoning_format")
    in_channels = (
        tools.style == "channels",
        reasoning is not None and reasoning.style == "channels",
    )
    if in_channels == (True, False):
        if config.tool_format is not None and config.reasoning_format is None:
            return tools, REASONING_FORMATS[tools.name]
        raise _format_mismatch(tools.name, config.reasoning_format)
    if in_channels == (False, True):
        assert reasoning is not None
        if config.reasoning_format is not None and config.tool_format is None:
            return TOOL_FORMATS[reasoning.name], reasoning
        if config.reasoning_format is None:
            return tools, None
        raise _format_mismatch(config.tool_format, reasoning.name)
    return tools, reasoning


def _format_mismatch(tools: str | None, reasoning: str | None) -> InvalidParameterError:
    return InvalidParameterError(
        f"the tool format {tools!r} and the reasoning format {reasoning!r} can't be combined",
        param="reasoning_format",
    )


def _as_system(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Converts a developer message for templates that only know the system role."""
    return {**message, "role": "system"} if message["role"] == "developer" else message


def _thinking_unsupported(why: str) -> InvalidParameterError:
    return InvalidParameterError(
        f"this model {why}; omit thinking", param="thinking", code="unsupported_parameter"
    )


def _is_long(conversation: Conversation) -> bool:
    """Whether rendering and encoding should run in a thread."""
    if len(conversation.tools) > 8 or len(conversation.messages) > 200:
        return True
    return sum(map(_size, conversation.messages)) > INLINE_LEN


def _size(message: Mapping[str, Any]) -> int:
    content = message.get("content") or ""
    return len(content) if isinstance(content, str) else sum(len(p["text"]) for p in content)


def _find_format(formats: Mapping[str, Format], name: str, param: str) -> Format:
    if name not in formats:
        raise InvalidParameterError(
            f"unknown {param} {name!r}; available: {', '.join(formats)}", param=param
        )
    return formats[name]

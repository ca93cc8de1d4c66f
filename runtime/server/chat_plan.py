"""From a conversation to a prompt, a constraint and a parser: the same for every chat API."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from ramet.grammars.constraints import Constraint
from ramet.runtime.errors import EmptyPromptError, InvalidParameterError
from ramet.runtime.params import SamplingParams
from ramet.runtime.server.chat_grammar import chat_constraint, tool_calls, tool_schemas
from ramet.runtime.server.config import ServerConfig
from ramet.runtime.server.conversation import Conversation
from ramet.runtime.server.reasoning_budget import ReasoningBudget
from ramet.runtime.streams import (
    REASONING_FORMATS,
    TOOL_FORMATS,
    ChatParser,
    ReasoningFormat,
    ToolFormat,
    detect_reasoning_format,
    detect_tool_format,
)
from ramet.runtime.tokenizer import ChatTemplate, Tokenizer, fold_tools

Format = TypeVar("Format")

_TAIL_TOKENS = 32
"""Enough of a prompt's end to see whether its template has opened or closed the reasoning."""


_NEVER_REASONS = "doesn't reason before it answers"


@dataclass(frozen=True, slots=True)
class ChatPlan:
    """How a conversation is continued.

    Attributes:
        prompt: the prompt's token ids.
        constraint: what the output must match.
        reasoning: the tags that split reasoning off; None where there is none to expect.
        is_reasoning_open: the prompt ends inside reasoning.
        tool_format: how tool calls are written; None where none may be made.
        schemas: each tool's parameters' schema.
        shows_special: tags are control tokens here, so these must reach the parser as text.
        budget: bounds the reasoning, for a conversation that has a budget.
    """

    prompt: tuple[int, ...]
    constraint: Constraint | None = None
    reasoning: ReasoningFormat | None = None
    is_reasoning_open: bool = False
    tool_format: ToolFormat | None = None
    schemas: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    shows_special: bool = False
    budget: ReasoningBudget | None = None

    def adapt(self, params: SamplingParams) -> SamplingParams:
        """``params`` as the parser needs them."""
        return replace(params, skip_special_tokens=False) if self.shows_special else params

    def parser(self) -> ChatParser:
        """A fresh parser, for one choice."""
        return ChatParser(
            reasoning=self.reasoning,
            is_reasoning_open=self.is_reasoning_open,
            tools=self.tool_format,
            schemas=self.schemas,
        )


class ChatPlanner:
    """Plans chat calls for one model. Its formats are those that the template teaches, unless
    the configuration names others.

    Raises:
        InvalidParameterError: the configuration names a format that doesn't exist.
    """

    def __init__(
        self, tokenizer: Tokenizer, template: ChatTemplate | None, config: ServerConfig
    ) -> None:
        source = template.source if template else None
        self._max_tools = config.max_tools
        self._tokenizer = tokenizer
        self._template = template
        self._tool_format = (
            detect_tool_format(source)
            if config.tool_format is None
            else _named(TOOL_FORMATS, config.tool_format, "tool_format")
        )
        self._reasoning = (
            detect_reasoning_format(source)
            if config.reasoning_format is None
            else _named(REASONING_FORMATS, config.reasoning_format, "reasoning_format")
        )

    @property
    def template(self) -> ChatTemplate:
        """The template; ``ChatTemplateError`` if the model has none."""
        return self._template or ChatTemplate.of(self._tokenizer)

    async def prompt(self, conversation: Conversation) -> tuple[int, ...]:
        """The conversation's token ids; long ones are printed and encoded in another thread."""
        template, tools = self.template, conversation.tools
        messages = conversation.messages
        if "developer" not in template.source:
            messages = [_as_system(message) for message in messages]
        variables = self._variables(conversation)

        def encode() -> tuple[int, ...]:
            shown, printed = tools, messages
            if not template.prints_tools:
                shown, printed = (), fold_tools(messages, tools, self._tool_format)
            return tuple(
                template.encode(
                    printed,
                    tools=shown or None,
                    add_generation_prompt=conversation.add_generation_prompt,
                    continue_final_message=conversation.continue_final_message,
                    variables=variables,
                )
            )

        is_long = len(tools) > 8 or sum(map(_size, messages)) > 20_000
        ids = await asyncio.to_thread(encode) if is_long else encode()
        if not ids:
            raise EmptyPromptError("the chat template prints nothing", param="messages")
        return ids

    async def plan(self, conversation: Conversation) -> ChatPlan:
        """The plan of one call."""
        schemas = self._callable(conversation)
        if not schemas:
            conversation = replace(conversation, tools=())
        prompt = await self.prompt(conversation)
        reasoning, is_open = self._reasoning_of(prompt)
        tool_format = self._tool_format if schemas else None
        choice = conversation.tool_choice
        calls = None
        if tool_format is not None:
            calls = tool_calls(
                tool_format,
                schemas,
                choice,
                parallel=conversation.parallel_tool_calls,
                has_answer=conversation.constraint is not None,
            )
        held_to = partial(
            chat_constraint,
            conversation.constraint,
            calls=calls,
            must_call=choice not in ("none", "auto"),
        )
        budget = None
        if conversation.thinking_budget is not None:
            if reasoning is None:
                raise _cannot_think(
                    "has ended its reasoning in the prompt" if self._reasoning else _NEVER_REASONS
                )
            answer = held_to(None, is_reasoning_open=False)
            budget = ReasoningBudget(conversation.thinking_budget, reasoning, is_open, answer)
        constraint = held_to(reasoning, is_reasoning_open=is_open)
        tags = [each.begin for each in (reasoning, tool_format) if each is not None]
        return ChatPlan(
            prompt,
            constraint,
            reasoning,
            is_reasoning_open=is_open,
            tool_format=tool_format,
            schemas=schemas,
            shows_special=any(tag in self._tokenizer.control_texts for tag in tags),
            budget=budget,
        )

    def _callable(self, conversation: Conversation) -> dict[str, dict[str, Any]]:
        """The argument schemas of the tools that may be called, by name."""
        choice = conversation.tool_choice
        num_tools = len(conversation.tools)
        if num_tools > self._max_tools:
            raise InvalidParameterError(
                f"{num_tools} tools are more than the limit of {self._max_tools}", param="tools"
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
        return {} if choice == "none" else schemas

    def _reasoning_of(self, prompt: tuple[int, ...]) -> tuple[ReasoningFormat | None, bool]:
        """The reasoning to expect behind a prompt, and whether the prompt has begun it."""
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
        elif effort != "none":
            raise InvalidParameterError(
                f"this model's reasoning can't be set to {effort!r}; leave it out, or say 'none'",
                param="reasoning_effort",
                code="unsupported_parameter",
            )
        return variables

    def _thinking_variables(self, thinking: bool) -> dict[str, Any]:
        """What turns reasoning on or off; refused where the model can't be asked to."""
        has_switch = "enable_thinking" in self.template.source
        if has_switch:
            return {"enable_thinking": thinking}
        if thinking == (self._reasoning is not None):
            return {}
        raise _cannot_think(_NEVER_REASONS if thinking else "always reasons")


def _as_system(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """A developer's message for templates that know only the system's."""
    return {**message, "role": "system"} if message["role"] == "developer" else message


def _cannot_think(why: str) -> InvalidParameterError:
    return InvalidParameterError(
        f"this model {why}; leave thinking out", param="thinking", code="unsupported_parameter"
    )


def _size(message: Mapping[str, Any]) -> int:
    content = message.get("content") or ""
    return len(content) if isinstance(content, str) else sum(len(p["text"]) for p in content)


def _named(formats: Mapping[str, Format], name: str, param: str) -> Format:
    if name not in formats:
        raise InvalidParameterError(
            f"there is no {param} {name!r}; there are {', '.join(formats)}", param=param
        )
    return formats[name]

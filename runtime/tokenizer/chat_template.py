"""The chat template of a model file: Jinja, in a sandbox, with Hugging Face's conventions."""

from __future__ import annotations

import datetime
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import CodeType
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.meta
import jinja2.nodes
import jinja2.parser

from ramet.runtime.api.errors import (
    ChatTemplateError,
    InvalidParameterError,
    ModelLoadError,
    RequestAbortedError,
)
from ramet.runtime.tokenizer.encoders import PromptPiece
from ramet.runtime.tokenizer.messages import Message, arguments_as_text, normalise_messages
from ramet.runtime.tokenizer.protection import Protection
from ramet.runtime.tokenizer.template_sandbox import (
    MAX_SOURCE_LEN,
    RESERVED,
    RenderBudget,
    RenderLimitError,
    TemplateSandbox,
)
from ramet.runtime.tokenizer.tokenizer import Tokenizer

_OWN_VARIABLES = RESERVED | {
    "messages", "tools", "add_generation_prompt", "bos_token", "eos_token",
}  # fmt: skip


def _environment() -> TemplateSandbox:
    environment = TemplateSandbox(
        {"tojson": _to_json},
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[jinja2.ext.loopcontrols, _GenerationBlock],
    )
    environment.globals["raise_exception"] = _raise_exception
    return environment


@functools.lru_cache(maxsize=16)
def _compiled(source: str) -> tuple[CodeType, bool]:
    """A template's code, and whether it looks at ``tools``."""
    if len(source) > MAX_SOURCE_LEN:
        raise ValueError(f"it is longer than {MAX_SOURCE_LEN} characters")
    environment = _environment()
    undeclared = jinja2.meta.find_undeclared_variables(environment.parse(source))
    return environment.compile(environment.bounded(source)), "tools" in undeclared


class ChatTemplate:
    """Prints messages as a prompt, as the model was trained to see them.

    Args:
        source: the Jinja template.
        tokenizer: its control tokens are what users' text can't make.
        now: what ``strftime_now`` in a template asks; local time by default.

    Attributes:
        prints_tools: whether the template looks at ``tools``; ``fold_tools`` serves the others.

    Raises ``ModelLoadError`` for a template that isn't valid Jinja, or can't be compiled.
    """

    def __init__(
        self,
        source: str,
        tokenizer: Tokenizer,
        *,
        now: Callable[[], datetime.datetime] = datetime.datetime.now,
    ) -> None:
        self.source = source
        self._tokenizer = tokenizer
        try:
            code, self.prints_tools = _compiled(source)
        except jinja2.TemplateSyntaxError as error:
            raise ModelLoadError(
                f"the chat template is not valid Jinja: {error.message} (line {error.lineno})"
            ) from None
        except Exception as error:  # Jinja recurses, and its output is compiled as Python.
            raise ModelLoadError(
                f"the chat template can't be compiled: {type(error).__name__}: {error}"
            ) from None
        environment = _environment()
        environment.globals["strftime_now"] = lambda form: now().strftime(form)
        self._template = jinja2.Template.from_code(
            environment, code, environment.make_globals(None)
        )

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> ChatTemplate:
        """The tokenizer's own template; ``ChatTemplateError`` if its model file has none."""
        if tokenizer.chat_template is None:
            raise ChatTemplateError(
                "this model has no chat template: send a plain prompt to the completions API, or "
                "start the engine with a chat template",
                code="no_chat_template",
            )
        return cls(tokenizer.chat_template, tokenizer)

    @classmethod
    def read(cls, path: str | Path, tokenizer: Tokenizer) -> ChatTemplate:
        """The template in a file.

        Raises:
            InvalidParameterError: the file can't be read as UTF-8.
            ModelLoadError: see ``ChatTemplate``.
        """
        try:
            source = Path(path).expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InvalidParameterError(
                f"the chat template {path} can't be read: {reason}", param="chat_template"
            ) from None
        return cls(source, tokenizer)

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        variables: Mapping[str, Any] | None = None,
    ) -> list[PromptPiece]:
        """The prompt, in pieces for ``Tokenizer.encode_pieces``.

        Args:
            messages: see ``normalise_messages``; all their strings are plain text to the model.
            tools: the tools, in the OpenAI shape, for templates that print them.
            add_generation_prompt: end with the start of the assistant's turn.
            continue_final_message: end inside the last message, right behind its content, so
                that the output continues it; excludes ``add_generation_prompt``.
            variables: further template variables, such as ``enable_thinking``.

        Raises ``ChatTemplateError`` when the template refuses the messages.
        """
        variables = variables or {}
        for name in variables:
            if name in _OWN_VARIABLES or not name.isidentifier():
                raise InvalidParameterError(
                    f"{name!r} can't be set as a template variable", param="chat_template_kwargs"
                )
        plain = normalise_messages(messages)
        if continue_final_message and add_generation_prompt:
            raise InvalidParameterError(
                "continue_final_message and add_generation_prompt exclude each other",
                param="continue_final_message",
            )
        guard = Protection(
            self._tokenizer.control_texts, plain, tools or (), variables, self.source
        )
        protected = guard.protect(plain)
        if continue_final_message:
            protected[-1]["content"] += guard.end_mark
        budget = RenderBudget(guard.num_chars)
        inputs = {
            **budget.variables(),
            **guard.protect(variables),
            "messages": protected,
            "tools": guard.protect(tools) if tools else None,
            "add_generation_prompt": add_generation_prompt,
            "bos_token": self._text_of(self._tokenizer.bos_id),
            "eos_token": self._text_of(self._tokenizer.eos_id),
        }
        try:
            printed = self._print(inputs)
        except ChatTemplateError as error:
            # Some templates append a call's arguments to a text, and so need JSON text.
            if not isinstance(error.__cause__, TypeError) or not _has_call_objects(plain):
                raise
            inputs["messages"] = arguments_as_text(protected)
            printed = self._print(inputs)
        if continue_final_message:
            head, end_mark, _ = printed.rpartition(guard.end_mark)
            if not end_mark:
                raise ChatTemplateError(
                    "the chat template doesn't print the last message's content, so it can't be "
                    "continued",
                    param="continue_final_message",
                )
            printed = head
        return guard.split(printed)

    def encode(self, messages: Sequence[Message], **options: Any) -> list[int]:
        """The prompt's token ids; ``options`` are those of ``render``."""
        return self._tokenizer.encode_pieces(self.render(messages, **options))

    def _print(self, variables: Mapping[str, Any]) -> str:
        try:
            return self._template.render(variables)
        except _TemplateRefusal as error:
            raise ChatTemplateError(
                f"the model's chat template refuses the messages: {error}", param="messages"
            ) from None
        except RequestAbortedError:
            raise
        except RenderLimitError as error:
            raise ChatTemplateError(
                f"the model's chat template can't be rendered: {error}",
                param="messages",
                code="chat_template_limit",
            ) from None
        except Exception as error:  # A template can fail in any way that Python code can.
            raise ChatTemplateError(
                f"the model's chat template fails on the messages: {error}", param="messages"
            ) from error

    def _text_of(self, token_id: int | None) -> str:
        return "" if token_id is None else self._tokenizer.token_bytes(token_id).decode()


def _has_call_objects(messages: Sequence[Message]) -> bool:
    return any(
        isinstance(call["function"]["arguments"], Mapping)
        for message in messages
        for call in message.get("tool_calls", ())
    )


class _TemplateRefusal(Exception):
    """A template called ``raise_exception``."""


def _raise_exception(message: str) -> NoReturn:
    raise _TemplateRefusal(message)


def _to_json(
    value: Any,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
    ensure_ascii: bool = False,
) -> str:
    """JSON as the models saw it: no HTML escapes, which Jinja's own filter adds."""
    return json.dumps(
        value,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
        ensure_ascii=ensure_ascii,
    )


class _GenerationBlock(jinja2.ext.Extension):
    """``{% generation %}``, which marks training targets in some templates, prints its body."""

    tags = frozenset({"generation"})  # type: ignore[assignment]

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.Scope(body, lineno=line)

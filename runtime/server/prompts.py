"""Prompts of each API as token ids. Long texts are encoded off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from ramet.runtime.errors import EmptyPromptError, InvalidParameterError
from ramet.runtime.tokenizer import ChatTemplate, Tokenizer

_INLINE_CHARS = 20_000
"""Below this, encoding takes less time than handing it to another thread is worth."""


class PromptEncoder:
    """Turns what clients send into prompt token ids.

    Args:
        tokenizer: the model's.
        chat_template: the model's, or None if it has none.
    """

    def __init__(self, tokenizer: Tokenizer, chat_template: ChatTemplate | None) -> None:
        self.tokenizer = tokenizer
        self._chat_template = chat_template

    @property
    def chat_template(self) -> ChatTemplate:
        """The template; ``ChatTemplateError`` if the model has none."""
        return self._chat_template or ChatTemplate.of(self.tokenizer)

    async def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **options: Any,
    ) -> tuple[int, ...]:
        """A conversation's ids; ``options`` are those of ``ChatTemplate.render``."""
        template = self.chat_template
        size = sum(len(message.get("content") or "") for message in messages)
        if tools:
            size += 400 * len(tools)

        def encode() -> tuple[int, ...]:
            return tuple(template.encode(messages, tools=tools, **options))

        ids = encode() if size < _INLINE_CHARS else await asyncio.to_thread(encode)
        if not ids:
            raise EmptyPromptError("the chat template printed nothing", param="messages")
        return ids

    async def text(
        self, prompt: str | list[int], *, add_special_tokens: bool = True, param: str = "prompt"
    ) -> tuple[int, ...]:
        """A plain prompt's ids. Its author writes the whole prompt, so control tokens count."""
        if isinstance(prompt, list):
            return self.token_ids(prompt, param=param)
        tokenizer = self.tokenizer

        def encode() -> tuple[int, ...]:
            add_bos = add_special_tokens and tokenizer.adds_bos
            return tuple(tokenizer.encode(prompt, allow_special=True, add_bos=add_bos))

        ids = encode() if len(prompt) < _INLINE_CHARS else await asyncio.to_thread(encode)
        if not ids:
            raise EmptyPromptError("the prompt is empty", param=param)
        return ids

    def token_ids(self, ids: Sequence[int], *, param: str) -> tuple[int, ...]:
        """Ids that a client sent; ``InvalidParameterError`` if one is not in the vocabulary."""
        if not ids:
            raise EmptyPromptError("the prompt is empty", param=param)
        if min(ids) < 0 or max(ids) >= self.tokenizer.vocab_size:
            wrong = next(i for i in ids if not 0 <= i < self.tokenizer.vocab_size)
            raise InvalidParameterError(
                f"there is no token {wrong}; ids are 0 to {self.tokenizer.vocab_size - 1}",
                param=param,
            )
        return tuple(ids)

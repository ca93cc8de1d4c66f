"""Plain prompts as token ids. Long texts are encoded off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ramet.runtime.errors import EmptyPromptError, InvalidParameterError
from ramet.runtime.tokenizer import Tokenizer

_INLINE_CHARS = 20_000
"""Below this, encoding takes less time than handing it to another thread is worth."""


class PromptEncoder:
    """Turns plain prompts, as text or token ids, into token ids that are in the vocabulary."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

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

"""Plain prompts as token ids. Long texts are encoded off the event loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ramet.runtime.api.errors import EmptyPromptError, InvalidParameterError
from ramet.runtime.api.off_loop import INLINE_LEN, run_off_loop
from ramet.runtime.tokenizer import Tokenizer


class PromptEncoder:
    """Turns plain prompts, as text or token ids, into token ids that are in the vocabulary."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    async def encode(
        self,
        prompts: Sequence[str | list[int]],
        *,
        add_special_tokens: bool = True,
        param: Callable[[int], str] = lambda _: "prompt",
    ) -> list[tuple[int, ...]]:
        """The prompts' ids. Their author writes all of a prompt, so control tokens count.

        ``param`` names the field of the prompt at an index, for errors.
        """

        def encode() -> list[tuple[int, ...]]:
            return [
                self._encode(prompt, add_special_tokens=add_special_tokens, param=param(index))
                for index, prompt in enumerate(prompts)
            ]

        return await run_off_loop(encode, is_long=sum(map(len, prompts)) > INLINE_LEN)

    def _encode(
        self, prompt: str | list[int], *, add_special_tokens: bool, param: str
    ) -> tuple[int, ...]:
        if isinstance(prompt, list):
            return self.token_ids(prompt, param=param)
        add_bos = add_special_tokens and self.tokenizer.adds_bos
        ids = self.tokenizer.encode(prompt, allow_special=True, add_bos=add_bos)
        if not ids:
            raise EmptyPromptError("the prompt is empty", param=param)
        return tuple(ids)

    async def text(self, token_ids: Sequence[int], *, param: str) -> str:
        """The text of ids that a client sent, control tokens included."""

        def decode() -> str:
            ids = self.token_ids(token_ids, param=param) if token_ids else ()
            return self.tokenizer.decode(ids, skip_special=False)

        return await run_off_loop(decode, is_long=len(token_ids) > INLINE_LEN)

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

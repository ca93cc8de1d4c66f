"""Encodes plain prompts; long ones in a thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ramet.runtime.api.errors import EmptyPromptError, InvalidParameterError
from ramet.runtime.api.off_loop import INLINE_LEN, run_off_loop, stop_if_gone
from ramet.runtime.tokenizer import Tokenizer
from ramet.runtime.tokenizer.prompt_limit import PromptLimit


class PromptEncoder:
    """Converts plain prompts, text or token ids, to valid token ids."""

    def __init__(self, tokenizer: Tokenizer, max_context_len: int) -> None:
        self.tokenizer = tokenizer
        self._limit = PromptLimit(tokenizer, max_context_len)

    async def encode(
        self,
        prompts: Sequence[str | list[int]],
        *,
        add_special_tokens: bool = True,
        param: Callable[[int], str] = lambda _: "prompt",
    ) -> list[tuple[int, ...]]:
        """Encodes the prompts; control tokens in their text are honoured.

        ``param`` names the field of the prompt at an index, for errors.

        Raises:
            ContextLengthError: a text has more bytes than the context can hold.
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
        stop_if_gone()
        if isinstance(prompt, list):
            return self.token_ids(prompt, param=param)
        self._limit.check([prompt], param=param)
        add_bos = add_special_tokens and self.tokenizer.adds_bos
        ids = self.tokenizer.encode(prompt, allow_special=True, add_bos=add_bos)
        if not ids:
            raise EmptyPromptError("the prompt is empty", param=param)
        return tuple(ids)

    async def text(self, token_ids: Sequence[int], *, param: str) -> str:
        """Decodes ids sent by a client, control tokens included."""

        def decode() -> str:
            ids = self.token_ids(token_ids, param=param) if token_ids else ()
            return self.tokenizer.decode(ids, skip_special=False)

        return await run_off_loop(decode, is_long=len(token_ids) > INLINE_LEN)

    def token_ids(self, ids: Sequence[int], *, param: str) -> tuple[int, ...]:
        """Validates ids sent by a client; ``InvalidParameterError`` if one is out of range."""
        if not ids:
            raise EmptyPromptError("the prompt is empty", param=param)
        if min(ids) < 0 or max(ids) >= self.tokenizer.vocab_size:
            wrong = next(i for i in ids if not 0 <= i < self.tokenizer.vocab_size)
            raise InvalidParameterError(
                f"token id {wrong} is out of range: ids are 0 to {self.tokenizer.vocab_size - 1}",
                param=param,
            )
        return tuple(ids)

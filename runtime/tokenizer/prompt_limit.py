"""Refuses prompts that no context can hold, by their bytes, before they are tokenised."""

from __future__ import annotations

from collections.abc import Iterable

from ramet.runtime.api.errors import ContextLengthError
from ramet.runtime.tokenizer.tokenizer import Tokenizer

_MAX_UTF8_LEN = 4


class PromptLimit:
    """The bytes of a context full of the vocabulary's longest token.

    Args:
        max_context_len: in tokens.
    """

    def __init__(self, tokenizer: Tokenizer, max_context_len: int) -> None:
        self._max_context_len = max_context_len
        self._longest_token_len = tokenizer.longest_token_len

    def check(self, texts: Iterable[str], *, param: str) -> None:
        """Raises ``ContextLengthError`` if the texts of one prompt are too long together."""
        texts = list(texts)
        limit = self._max_context_len * self._longest_token_len
        if sum(map(len, texts)) * _MAX_UTF8_LEN <= limit:
            return
        num_bytes = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
        if num_bytes > limit:
            raise ContextLengthError(
                f"this model's maximum context length is {self._max_context_len} tokens of at most "
                f"{self._longest_token_len} bytes; the prompt has {num_bytes} bytes",
                param=param,
            )

"""The vocabulary that grammars make masks over."""

from __future__ import annotations

from ramet.grammars import Vocabulary
from ramet.runtime.tokenizer import Tokenizer


def grammar_vocabulary(tokenizer: Tokenizer, vocab_size: int) -> Vocabulary:
    """A tokenizer's tokens as a vocabulary as wide as a model's head."""
    tokens = tokenizer.vocabulary
    padding: list[bytes | None] = [None] * (vocab_size - len(tokens))
    special_ids = {
        text: token_id
        for text in tokenizer.control_texts
        if (token_id := tokenizer.special_id(text)) is not None
        and token_id not in tokenizer.eos_ids
    }
    return Vocabulary.from_tokens(tokens + padding, set(tokenizer.eos_ids), special_ids)

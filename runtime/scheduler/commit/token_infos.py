"""The ``TokenInfo`` of each token: its bytes, log-probabilities and origin."""

from __future__ import annotations

import numpy as np

from ramet.runtime.api.events import TokenInfo, TokenLogprob, TokenOrigin
from ramet.runtime.scheduler.sequence.sequence import Sequence
from ramet.runtime.tokenizer.tokenizer import Tokenizer


class TokenInfos:
    """Creates token infos; those without log-probabilities are created once.

    Attributes:
        texts: every token's bytes. A model's head may have more rows than there are tokens; the
            texts of those are empty.
    """

    def __init__(self, tokenizer: Tokenizer, vocab_size: int) -> None:
        self.texts = [
            tokenizer.token_bytes(token_id) if token_id < tokenizer.vocab_size else b""
            for token_id in range(vocab_size)
        ]
        self._plain: dict[int, TokenInfo] = {}

    def info(
        self,
        token_id: int,
        logprob: float | None = None,
        top: tuple[tuple[int, float], ...] = (),
        origin: TokenOrigin = "sampled",
        num_allowed: int | None = None,
    ) -> TokenInfo:
        """A token with its bytes; ``top`` are the likeliest tokens with their log-probabilities."""
        if logprob is None and not top:
            plain = self._plain.get(token_id)
            if plain is None:
                plain = self._plain[token_id] = TokenInfo(token_id, self.texts[token_id])
            return plain
        return TokenInfo(
            token_id,
            self.texts[token_id],
            logprob,
            tuple(TokenLogprob(i, self.texts[i], value) for i, value in top),
            origin,
            num_allowed,
        )


def num_allowed_tokens(sequence: Sequence) -> int | None:
    """The number of tokens the grammar allows next; None without a grammar or a kept mask."""
    ready = sequence.ready_mask
    if ready is None or ready.num_output != sequence.num_output:
        return None
    return int(np.bitwise_count(ready.mask.view(np.uint32)).sum())

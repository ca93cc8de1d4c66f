"""Log-probabilities in the shapes of each API."""

from __future__ import annotations

import codecs
import math
from collections.abc import Iterable, Sequence
from typing import Any

from ramet.runtime.api.events import TokenInfo, TokenLogprob


def token_text(token_bytes: bytes) -> str:
    """Decodes a token; invalid UTF-8 is replaced."""
    return token_bytes.decode("utf-8", "replace")


def finite(logprob: float) -> float:
    """JSON has no infinity; OpenAI uses -9999 for it."""
    return logprob if math.isfinite(logprob) else -9999.0


def chat_logprobs(
    tokens: Iterable[TokenInfo], *, with_origin: bool = False
) -> list[dict[str, Any]]:
    """Entries of a chat choice's ``logprobs.content``, one a token; ``bytes`` are the raw ones.

    ``with_origin`` adds Ramet's own ``origin`` and ``num_allowed``: see ``TokenInfo``.
    """
    return [
        {
            "token": token_text(token.token_bytes),
            "logprob": finite(token.logprob or 0.0),
            "bytes": list(token.token_bytes),
            "top_logprobs": [_chat_top(top) for top in token.top_logprobs],
            **({"origin": token.origin, "num_allowed": token.num_allowed} if with_origin else {}),
        }
        for token in tokens
    ]


def _chat_top(top: TokenLogprob) -> dict[str, Any]:
    return {
        "token": token_text(top.token_bytes),
        "logprob": finite(top.logprob),
        "bytes": list(top.token_bytes),
    }


class CompletionLogprobs:
    """Builds the ``logprobs`` of one completions choice, whole or in pieces.

    ``text_offset`` counts characters of the choice's text; a token that begins inside a character
    has the offset of that character's end.
    """

    def __init__(self, *, with_top: bool) -> None:
        self._with_top = with_top
        self._offset = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, tokens: Sequence[TokenInfo]) -> dict[str, Any]:
        """The four parallel lists for the next tokens."""
        offsets = []
        for token in tokens:
            offsets.append(self._offset)
            self._offset += len(self._decoder.decode(token.token_bytes))
        return {
            "tokens": [_legacy_text(token.token_bytes) for token in tokens],
            "token_logprobs": [
                None if token.logprob is None else finite(token.logprob) for token in tokens
            ],
            "top_logprobs": [self._top(token) for token in tokens] if self._with_top else None,
            "text_offset": offsets,
        }

    @staticmethod
    def _top(token: TokenInfo) -> dict[str, float] | None:
        if token.logprob is None:
            return None
        top = {_legacy_text(top.token_bytes): finite(top.logprob) for top in token.top_logprobs}
        top.setdefault(_legacy_text(token.token_bytes), finite(token.logprob))
        return top


def _legacy_text(token_bytes: bytes) -> str:
    """Whole characters as they are; others as ``bytes:\\xf0\\x9f``, as OpenAI writes them."""
    try:
        return token_bytes.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in token_bytes)


def prompt_logprobs(tokens: Sequence[TokenInfo]) -> list[dict[str, Any] | None]:
    """vLLM's ``prompt_logprobs``: a mapping by token id for each prompt token, null for the first.

    ``rank`` is given where it is known: 1 is the likeliest.
    """
    entries: list[dict[str, Any] | None] = []
    for token in tokens:
        if token.logprob is None:
            entries.append(None)
            continue
        entry = {
            str(top.token_id): {
                "logprob": finite(top.logprob),
                "rank": rank,
                "decoded_token": token_text(top.token_bytes),
            }
            for rank, top in enumerate(token.top_logprobs, start=1)
        }
        entry.setdefault(
            str(token.token_id),
            {
                "logprob": finite(token.logprob),
                "decoded_token": token_text(token.token_bytes),
            },
        )
        entries.append(entry)
    return entries

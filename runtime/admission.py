"""What a request must satisfy before anything is done for it."""

from __future__ import annotations

from collections.abc import Iterable

from ramet.runtime.errors import (
    ContextLengthError,
    EmptyPromptError,
    InvalidParameterError,
)
from ramet.runtime.request import Request


def check_request(request: Request, *, vocab_size: int, max_len: int) -> int:
    """Raises why a request can't be served; returns the most tokens that it may grow to.

    ``max_len`` is what both the model's context and the page pool can hold.
    """
    params, num_prompt = request.params, len(request.prompt_token_ids)
    if not num_prompt:
        raise EmptyPromptError("the prompt has no tokens", param="prompt")
    _check_ids("prompt", request.prompt_token_ids, vocab_size)
    _check_ids("logit_bias", params.logit_bias, vocab_size)
    _check_ids("stop_token_ids", params.stop_token_ids, vocab_size)
    _check_ids("allowed_token_ids", params.allowed_token_ids or (), vocab_size)
    _check_scoring(request)
    for name in ("deadline_s", "ttft_target_s", "tpot_target_s"):
        value = getattr(request, name)
        if value is not None and not value > 0:
            raise InvalidParameterError(f"{name} must be above 0", param=name)
    wanted = params.max_tokens
    if wanted is None:
        needed = num_prompt + max(params.min_tokens, 1)
        described = f"at least {max(params.min_tokens, 1)} for the output"
    else:
        needed, described = num_prompt + wanted, f"{wanted} for the output (max_tokens)"
    if needed > max_len:
        raise ContextLengthError(
            f"this model's maximum context length is {max_len} tokens; the request needs "
            f"{needed}: {num_prompt} in the prompt and {described}",
            param="max_tokens" if num_prompt < max_len else "prompt",
        )
    return max_len if wanted is None else needed


def _check_ids(name: str, token_ids: Iterable[int], vocab_size: int) -> None:
    for token_id in token_ids:
        if not 0 <= token_id < vocab_size:
            raise InvalidParameterError(
                f"{name} names token {token_id}; ids are 0 to {vocab_size - 1}", param=name
            )


def _check_scoring(request: Request) -> None:
    start = request.score_from
    if start is None:
        return
    if request.params.prompt_logprobs is None:
        raise InvalidParameterError("score_from needs prompt_logprobs", param="score_from")
    if not 0 <= start <= len(request.prompt_token_ids):
        raise InvalidParameterError(
            f"score_from must be within the prompt's {len(request.prompt_token_ids)} tokens",
            param="score_from",
        )

"""Admission check: what a request must satisfy before any work is done for it."""

from __future__ import annotations

from collections.abc import Collection
from types import UnionType
from typing import get_args

from ramet.grammars import Constraint
from ramet.runtime.api.errors import ContextLengthError, EmptyPromptError, InvalidParameterError
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import PARAMS_AGAINST_COMPLETION, Pooling, ProgramHint, Request
from ramet.runtime.api.validate import number, only_ints, text, whole

_REQUEST_BYTES = 8 << 10
_TOKEN_BYTES = 128


def check_request(request: Request, *, vocab_size: int, max_len: int) -> int:
    """Checks a request; returns the most tokens that it may grow to.

    ``max_len`` is what both the model's context and the page pool can hold.
    """
    _check_types(request)
    params, num_prompt = request.params, len(request.prompt_token_ids)
    if not num_prompt:
        raise EmptyPromptError("the prompt has no tokens", param="prompt")
    _check_ids("logit_bias", params.logit_bias, vocab_size)
    _check_ids("stop_token_ids", params.stop_token_ids, vocab_size)
    _check_ids("allowed_token_ids", params.allowed_token_ids or (), vocab_size)
    _check_scoring(request)
    _check_pooling(request)
    _check_complete(request)
    wanted = 0 if request.pooling else params.max_tokens
    if request.pooling:
        needed, described = num_prompt, "nothing for an output"
    elif wanted is None:
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
    _check_ids("prompt", request.prompt_token_ids, vocab_size)  # of which there are that many
    return max_len if wanted is None else needed


def _check_types(request: Request) -> None:
    """Checks types, as scheduler and cache trust them: a wrong one would end the engine."""
    if not isinstance(request.prompt_token_ids, tuple):
        raise InvalidParameterError("prompt must be a tuple of token ids", param="prompt")
    _check_kind("params", request.params, SamplingParams)
    if request.constraint is not None:
        _check_kind("constraint", request.constraint, Constraint)
    for name in ("cache_salt", "tenant", "request_id"):
        text(name, getattr(request, name))
    for name in ("deadline_s", "ttft_target_s", "tpot_target_s"):
        value = getattr(request, name)
        if value is not None and not number(name, value) > 0:
            raise InvalidParameterError(f"{name} must be above 0", param=name)
    whole("priority", request.priority)
    if request.score_from is not None:
        whole("score_from", request.score_from)
    hint = request.hint
    if hint is None:
        return
    _check_kind("hint", hint, ProgramHint)
    for name in ("program_id", "node_id", "tool", "program", "extends"):
        text(f"hint.{name}", getattr(hint, name))
    if whole("hint.tokens_to_come", hint.tokens_to_come) < 0:
        raise InvalidParameterError(
            "hint.tokens_to_come must be at least 0", param="hint.tokens_to_come"
        )
    for name in ("steps_to_next_use", "remaining_uses"):
        uses = getattr(hint, name)
        if uses is not None and whole(f"hint.{name}", uses) < 0:
            raise InvalidParameterError(f"hint.{name} must be at least 0", param=f"hint.{name}")
    weight = number("hint.critical_path_weight", hint.critical_path_weight)
    if not 0 <= weight <= 1:
        raise InvalidParameterError(
            "hint.critical_path_weight must be in [0, 1]", param="hint.critical_path_weight"
        )


def _check_kind(name: str, value: object, kind: type | UnionType) -> None:
    if not isinstance(value, kind):
        names = kind.__name__ if isinstance(kind, type) else "one of Constraint's types"
        raise InvalidParameterError(
            f"{name} must be {names}, not {type(value).__name__}", param=name
        )


def _check_ids(name: str, token_ids: Collection[int], vocab_size: int) -> None:
    if not token_ids or (only_ints(token_ids) and _within(token_ids, vocab_size)):
        return
    for token_id in token_ids:
        if not 0 <= whole(name, token_id) < vocab_size:
            raise InvalidParameterError(
                f"{name} names token {token_id}; ids are 0 to {vocab_size - 1}", param=name
            )


def _within(token_ids: Collection[int], vocab_size: int) -> bool:
    return min(token_ids) >= 0 and max(token_ids) < vocab_size


def _check_complete(request: Request) -> None:
    """A complete output has a constraint, and nothing may forbid what ends it."""
    landing = request.landing
    if landing is not None:
        if not 0 <= number("landing", landing) < 1:
            raise InvalidParameterError("landing must be at least 0 and below 1", param="landing")
        if request.complete is False:
            raise InvalidParameterError("landing needs complete", param="landing")
    if not request.complete:
        return
    if request.constraint is None:
        raise InvalidParameterError("complete needs a constraint", param="complete")
    for name in PARAMS_AGAINST_COMPLETION:
        if getattr(request.params, name):
            raise InvalidParameterError(f"complete can't be combined with {name}", param=name)


def _check_pooling(request: Request) -> None:
    if request.pooling is None:
        return
    if request.pooling not in get_args(Pooling):
        raise InvalidParameterError(
            f"pooling must be mean or last, not {request.pooling!r}", param="pooling"
        )
    if request.params != SamplingParams() or request.constraint is not None:
        raise InvalidParameterError(
            "pooling generates nothing: leave out params and constraint",
            param="pooling",
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


def prompt_bytes(request: Request) -> int:
    """Approximate memory of a request's prompt, in both processes, from submission to end."""
    return _REQUEST_BYTES + _TOKEN_BYTES * len(request.prompt_token_ids)
